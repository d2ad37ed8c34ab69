"""A class with one object -> variables and functions: what the object has are variables, what it does are functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.source.names import Layout, dotted, layout_of, loads_in
from whichtorch.source.syntax import is_docstring
from whichtorch.triage.minimise.inlining import inlined
from whichtorch.triage.minimise.tree_edit import Edit, InvalidEditError, assignment, called, copied, load

if TYPE_CHECKING:
    from whichtorch.triage.minimise.tree_edit import Program, ReductionState


def inline_single_instance(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put functions and variables in place of a class that is made once, by the module itself."""
    layout = layout_of(program.tree)
    for node in program.tree.body:
        if not isinstance(node, ast.ClassDef) or layout.stores[node.name] != 1:
            continue
        uses = [use for use in layout.loads.get(node.name, []) if not layout.is_inside(use, node)]
        if len(uses) != 1:
            continue
        call = layout.parents[uses[0]]
        if isinstance(call, ast.Call) and call.func is uses[0] and isinstance(layout.scope(call), ast.Module):
            with suppress(InvalidEditError):
                yield _SingleInstance(node, call, layout).edit()


@dataclass(slots=True)
class _SingleInstance:
    """One class and the only call that makes an object of it."""

    node: ast.ClassDef
    call: ast.Call
    layout: Layout

    def edit(self) -> Edit:
        """Return the edit that leaves neither class nor object. Raises InvalidEditError where they are needed."""
        methods, values = self._members()
        names = self._names(methods, values)
        statement = self.layout.statement(self.call)
        assert statement is not None
        uses = self._uses(statement)
        replaced: dict[ast.AST, list[ast.AST]] = {}
        for use in uses:
            replaced |= self._replaced_use(use, names)
        if statement in replaced:
            raise InvalidEditError
        above: list[ast.stmt] = [assignment(names[name], value, self.call) for name, value in values.items()]
        above += self._initialized(methods.pop("__init__", None), names)
        replaced[self.node] = [self._function(method, names) for method in methods.values()]
        replaced[statement] = [*above, statement] if uses == [self.call] else [*above]
        return Edit(key=f"single instance {self.node.name}", replaced=replaced)

    def _members(self) -> tuple[dict[str, ast.FunctionDef], dict[str, ast.expr]]:
        """Return the methods of the class, and its class attributes. Raises InvalidEditError where it has more."""
        methods, values = dict[str, ast.FunctionDef](), dict[str, ast.expr]()
        for statement in self.node.body:
            match statement:
                case ast.FunctionDef(name=name, decorator_list=[], args=ast.arguments(args=[ast.arg(arg="self"), *_])):
                    methods[name] = statement
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    values[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=value):
                    values[name] = value or ast.Constant(value=None)
                case _ if not (isinstance(statement, ast.Pass) or is_docstring(statement)):
                    raise InvalidEditError
        return methods, values

    def _names(self, methods: dict[str, ast.FunctionDef], values: dict[str, ast.expr]) -> dict[str, str]:
        """Return what fields and methods are called outside of the class."""
        found: dict[str, str] = {}
        for name in sorted({*methods, *values, *_stored_in(self.node)}):
            plain = self.node.name.lower() if name.startswith("__") else name
            is_free = name in methods and self.layout.stores[name] == 1 and name not in self.layout.loads
            found[name] = plain if is_free and plain == name else self.layout.fresh(plain, found.values())
        return found

    def _function(self, method: ast.FunctionDef, names: dict[str, str]) -> ast.FunctionDef:
        """Return a method as a function of the module."""
        plain = _without_self(method, names)
        plain.name = names[method.name]
        if stored := _stored_in(method):
            plain.body = [ast.Global(names=[names[name] for name in sorted(stored)]), *plain.body]
        return plain

    def _initialized(self, maker: ast.FunctionDef | None, names: dict[str, str]) -> list[ast.stmt]:
        """Return what `__init__` does, in place of the call."""
        if maker is None and not (self.call.args or self.call.keywords):
            return []
        body = inlined(_without_self(maker, names), self.call, self.layout) if maker else None
        if body is None:
            raise InvalidEditError
        return body.above

    def _uses(self, statement: ast.stmt) -> list[ast.expr]:
        """Return where the object is used. Raises InvalidEditError where it may get about further."""
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is self.call:
                if self.layout.stores[name] != 1:
                    raise InvalidEditError
                return [*self.layout.loads.get(name, [])]
            case _:
                return [self.call]

    def _replaced_use(self, use: ast.expr, names: dict[str, str]) -> dict[ast.AST, list[ast.AST]]:
        """Return what stands in place of a use of the object."""
        outer, item = self.layout.parents[use], names.get("__getitem__")
        match outer:
            case ast.Attribute(attr=name, ctx=context) if name in names and not name.startswith("__"):
                return {outer: [ast.Name(id=names[name], ctx=context)]}
            case ast.Subscript(slice=place, ctx=ast.Load()) if item and outer.value is use:
                return {outer: [called(item, place)]}
            case ast.Attribute():
                raise InvalidEditError
            case ast.Expr():
                return {outer: []}
            case _ if function := _called(names):
                return {use: [load(function)]}
            case _ if item:  # a list of the first items does what the sequence did
                items = [called(item, ast.Constant(value=place)) for place in range(2)]
                return {use: [ast.List(elts=[*items], ctx=ast.Load())]}
            case _:
                raise InvalidEditError


def _without_self(method: ast.FunctionDef, names: dict[str, str]) -> ast.FunctionDef:
    """Return a method that reads names in place of `self.x`. Raises InvalidEditError where it needs the object."""
    replaced: dict[ast.AST, list[ast.AST]] = {}
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=context) if name in names:
                replaced[node] = [ast.Name(id=names[name], ctx=context)]
            case ast.Call(func=ast.Name(id="self") as owner) if function := _called(names):
                replaced[owner] = [load(function)]
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="__init__"))):
                replaced[node] = []
    plain = copied([method], replaced)[0]
    plain.args.args = plain.args.args[1:]
    if len(plain.args.defaults) > len(plain.args.args) or {"self", "super"} & loads_in(plain).keys():
        raise InvalidEditError
    return plain


def _stored_in(node: ast.AST) -> set[str]:
    """Return the names of the fields that methods assign."""
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and dotted(each.value) == "self"
    }


def _called(names: dict[str, str]) -> str | None:
    """Return the function that a call of the object runs."""
    return names.get("__call__") or names.get("forward")
