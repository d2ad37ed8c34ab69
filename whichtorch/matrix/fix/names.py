"""Which names a piece of a module's code binds, and which it uses from elsewhere, read from its tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call with keywords."""

    function: str  # "f", "module.f", or "?.f" for a method of something that has no name
    keywords: frozenset[str]


@dataclass(slots=True, kw_only=True)
class Uses:
    """What a piece of code uses that it does not bind itself."""

    names: set[str] = field(default_factory=set)  # free ones, those of annotations left out
    annotations: set[str] = field(default_factory=set)  # free ones that stand in annotations alone
    chains: set[str] = field(default_factory=set)  # "torch._C.f", "self.f": attributes of a name
    attributes: set[str] = field(default_factory=set)  # of anything
    strings: set[str] = field(default_factory=set)  # that could be names: of options, of what is registered
    imports: set[tuple[int, str, str]] = field(default_factory=set)  # level, module, name ("" for the module itself)
    calls: set[Called] = field(default_factory=set)


def uses(nodes: Iterable[ast.stmt]) -> Uses:
    """Return what statements use, as of the module that they stand in."""
    found = Uses()
    body = list(nodes)
    free, annotated = _free(body)
    found.names, found.annotations = free, annotated - free
    for top in body:
        for node in ast.walk(top):
            _note(node, found)
    return found


def _note(node: ast.AST, found: Uses) -> None:
    match node:
        case ast.Attribute(attr=attribute):
            found.attributes.add(attribute)
            if chain := dotted(node):
                found.chains.add(chain)
        case ast.Constant(value=str(text)) if text.isidentifier():
            found.strings.add(text)
        case ast.Import(names=aliases):
            found.imports |= {(0, alias.name, "") for alias in aliases}
        case ast.ImportFrom(module=module, names=aliases, level=level):
            found.imports |= {(level, module or "", alias.name) for alias in aliases}
        case ast.Call(func=function, keywords=keywords):
            named = frozenset(keyword.arg for keyword in keywords if keyword.arg)
            attribute = f"?.{function.attr}" if isinstance(function, ast.Attribute) else ""
            if named and (name := dotted(function) or attribute):
                found.calls.add(Called(function=name, keywords=named))


def dotted(node: ast.AST) -> str:
    """Return "a.b.c" for attributes of a name, "" for another expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            before = dotted(value)
            return f"{before}.{attribute}" if before else ""
        case _:
            return ""


def _free(nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Return the names that code uses and does not bind in its own scope, and those of its annotations."""
    used, annotated, stored = set[str](), set[str](), set[str]()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (*_SCOPES, ast.ClassDef)):
            outer, inner = _split(node)
            waiting += outer
            names, hints = _free(inner)
            own = _arguments(node) if not isinstance(node, ast.ClassDef) else set()
            used |= names - own
            annotated |= hints | _hints(node)
            stored |= {node.name} if hasattr(node, "name") else set()
        elif isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else stored).add(node.id)
        elif isinstance(node, ast.AnnAssign):
            annotated |= _names_in(node.annotation)
            waiting += [part for part in (node.target, node.value) if part]
        else:
            stored |= _bound_beside(node)
            waiting += ast.iter_child_nodes(node)
    return used - stored, annotated - stored


def _split(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """Return what of a scope's node is evaluated outside of it, and what inside; annotations are in neither."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*node.decorator_list, *_defaults(node.args)], list(node.body)
        case ast.Lambda():
            return _defaults(node.args), [node.body]
        case ast.ClassDef():
            return [*node.decorator_list, *node.bases, *node.keywords], list(node.body)
        case _:
            return [], list(ast.iter_child_nodes(node))


def _defaults(arguments: ast.arguments) -> list[ast.AST]:
    return [default for default in (*arguments.defaults, *arguments.kw_defaults) if default]


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    """Return the parameters of a function, *args and **kwargs last."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return named + [argument for argument in (arguments.vararg, arguments.kwarg) if argument]


def _arguments(node: ast.AST) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return {argument.arg for argument in parameters(node)}
    return set()


def _hints(node: ast.AST) -> set[str]:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return set()
    hints = [argument.annotation for argument in parameters(node)]
    return {name for hint in (*hints, node.returns) if hint for name in _names_in(hint)}


def _names_in(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _bound_beside(node: ast.AST) -> set[str]:
    """Return what a node binds other than by a Name or a definition."""
    match node:
        case ast.Import(names=aliases):
            return {alias.asname or alias.name.partition(".")[0] for alias in aliases}
        case ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name for alias in aliases}
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return {name}
        case _:
            return set()


def bound(nodes: Iterable[ast.AST]) -> set[str]:
    """Return what statements bind in the scope that they stand in, whichever branch is taken."""
    return set(_bound(nodes))


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, (*_SCOPES, ast.Name)):
            yield from _bound_beside(node)
            yield from _bound(ast.iter_child_nodes(node))


def module_of(path: str) -> str:
    """Return the dotted name of a file's module."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def absolute(path: str, level: int, module: str) -> str:
    """Return the module that an import statement in a file means."""
    if level == 0:
        return module
    here = module_of(path).split(".")
    kept = len(here) - level + path.endswith("/__init__.py")
    return ".".join([*here[:kept], *([module] if module else [])])


def imported(nodes: Collection[ast.AST], path: str) -> dict[str, str]:
    """Return what names the import statements among nodes bind, as dotted paths: {"nn": "torch.nn"}."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            module = absolute(path, node.level, node.module or "")
            found |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names}
    return found


def aliases(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return what names mean that stand for the members of others: `aten = torch.ops.aten`."""
    found = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value) if path := dotted(value):
                found[name] = path
    return found
