"""Which names code binds, reads, and uses from elsewhere, and where they stand. On doubt a name is bound."""

from __future__ import annotations

import ast
import builtins
import symtable
import warnings
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain, count
from typing import TypeGuard

from whichtorch.source.syntax import COMPREHENSIONS, Definition, Function, Scope

GIVEN = frozenset(dir(builtins)) | {
    *("__name__", "__file__", "__doc__", "__builtins__", "__spec__", "__loader__", "__package__", "__annotations__"),
    *("__class__", "__module__", "__qualname__", "__path__", "__debug__", "__cached__"),
}
_UNEVALUATED = "from __future__ import annotations\n"  # a line that keeps hints from being evaluated
_HINTS = "_annotation"  # what `symtable` calls the scope of a hint that is not evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordCall:
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
    calls: set[KeywordCall] = field(default_factory=set)


def uses(nodes: Iterable[ast.stmt]) -> Uses:
    """Return what statements use, as of the module that they stand in."""
    found = Uses()
    body = [node for node in nodes if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")]
    found.names = free_names(f"{_UNEVALUATED}{ast.unparse(ast.Module(body=body, type_ignores=[]))}")
    found.annotations = set(loads_in(*_hints(body))) - found.names - bound(body)
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
                found.calls.add(KeywordCall(function=name, keywords=named))


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


def free_names(source: str) -> set[str]:
    """Return the names that a text reads and does not bind itself, without those in hints that nothing evaluates.

    Raises SyntaxError.
    """
    with warnings.catch_warnings(action="ignore"):
        module = symtable.symtable(source, "source.py", "exec")
    used, bound_here = set[str](), set[str]()
    tables = [module]
    while tables:
        table = tables.pop()
        tables += (child for child in table.get_children() if child.get_name() != _HINTS)
        for symbol in table.get_symbols():
            is_global = table is module or symbol.is_declared_global()
            if is_global and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()):
                bound_here.add(symbol.get_name())
            if symbol.is_referenced() and (is_global or symbol.is_global()):
                used.add(symbol.get_name())
    return used - bound_here


def unbound_names(source: str) -> frozenset[str]:
    """Return the names that a text uses and that nothing binds; none where it may import all of a module."""
    return frozenset() if "import *" in source else frozenset(free_names(source) - GIVEN)


def _hints(nodes: Iterable[ast.stmt]) -> Iterator[ast.expr]:
    """Yield the annotations in statements."""
    for node in (inner for top in nodes for inner in ast.walk(top)):
        if isinstance(node, ast.AnnAssign):
            yield node.annotation
        elif isinstance(node, Function):
            hints = (*(parameter.annotation for parameter in parameters(node)), node.returns)
            yield from (hint for hint in hints if hint is not None)


def parameters(node: Function | ast.Lambda) -> list[ast.arg]:
    """Return the parameters of a function, *args and **kwargs last."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return named + [argument for argument in (arguments.vararg, arguments.kwarg) if argument]


def defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    """Return the defaults of parameters, by their names."""
    listed = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(listed[len(listed) - len(arguments.defaults) :], arguments.defaults, strict=True)]
    pairs += [(word, value) for word, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    return {parameter.arg: value for parameter, value in pairs}


def has_self(statement: ast.AST) -> TypeGuard[Function]:
    """Return whether a statement defines a method, which is found by another's name than its own."""
    if not isinstance(statement, Function):
        return False
    return any(parameter.arg in {"self", "cls"} for parameter in parameters(statement)[:1])


def _bound_by(node: ast.AST) -> str | None:
    """Return the name that a node itself binds, or deletes."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.alias(name=name, asname=asname):
            return asname or name.partition(".")[0]
    return None


def loads_in(*nodes: ast.AST) -> Counter[str]:
    """Count how often each name is read."""
    return Counter(
        each.id
        for node in nodes
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    )


def stores_in(*nodes: ast.AST) -> Counter[str]:
    """Count how often each name is bound, as anything, in whatever scope."""
    return Counter(name for node in nodes for each in ast.walk(node) if (name := _bound_by(each)))


def bound(nodes: Iterable[ast.AST]) -> set[str]:
    """Return what statements bind in the scope that they stand in, whichever branch is taken."""
    found, waiting = set[str](), list(nodes)
    while waiting:
        node = waiting.pop()
        found.update(filter(None, [_bound_by(node)]))
        if not isinstance(node, (Definition, ast.Lambda, ast.Delete, *COMPREHENSIONS)):
            waiting += ast.iter_child_nodes(node)
    return found


def compiles(source: str) -> bool:
    """Return whether Python can compile a text."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(source, "candidate.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    return True


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
    for node, alias in _aliases(nodes):
        if isinstance(node, ast.ImportFrom):
            found[alias.asname or alias.name] = f"{absolute(path, node.level, node.module or '')}.{alias.name}"
        else:
            first = alias.name.partition(".")[0]
            found[alias.asname or first] = alias.name if alias.asname else first
    return found


def import_statements(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.alias]]:
    """Yield a statement for each name that the import statements among nodes bind, and its alias there."""
    for node, alias in _aliases(nodes):
        source = f"from {'.' * node.level}{node.module or ''} " if isinstance(node, ast.ImportFrom) else ""
        yield f"{source}import {alias.name}{f' as {alias.asname}' if alias.asname else ''}", alias


def _aliases(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.Import | ast.ImportFrom, ast.alias]]:
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((node, alias) for alias in node.names)


def aliases(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return what names mean that stand for the members of others: `aten = torch.ops.aten`."""
    found = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value) if path := dotted(value):
                found[name] = path
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Where the nodes of a tree stand."""

    tree: ast.Module

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """What each node stands in."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def loads(self) -> dict[str, list[ast.Name]]:
        """Where each name is read."""
        found = defaultdict(list)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found[node.id].append(node)
        return found

    @cached_property
    def stores(self) -> Counter[str]:
        """How often each name is bound, in whatever scope."""
        return stores_in(self.tree)

    def outward(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node stands in, from the inside out."""
        while (found := self.parents.get(node)) is not None:
            node = found
            yield node

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Return the innermost statement that a node stands in, or is."""
        return next((each for each in (node, *self.outward(node)) if isinstance(each, ast.stmt)), None)

    def scope(self, node: ast.AST) -> Scope:
        """Return the function, class or module that a node stands in."""
        return next((each for each in self.outward(node) if isinstance(each, Scope)), self.tree)

    def is_inside(self, node: ast.AST, outer: ast.AST) -> bool:
        """Return whether a node is within another, or that itself."""
        return node is outer or any(each is outer for each in self.outward(node))

    def fresh(self, name: str, taken: Iterable[str] = ()) -> str:
        """Return a name like this that nothing in the tree has."""
        used = {*self.loads, *self.stores, *taken}
        numbered = (f"{name}_{number}" for number in count(2))
        return next(each for each in chain([name], numbered) if each not in used)


@lru_cache(maxsize=4)
def layout_of(tree: ast.Module) -> Layout:
    """Return where the nodes of a tree stand, found once for all that look at it in a row."""
    return Layout(tree=tree)
