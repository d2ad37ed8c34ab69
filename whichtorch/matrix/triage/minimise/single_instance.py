"""A class with one object -> variables and functions: what the object has are variables, what it does are functions."""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import Layout, layout_of
from whichtorch.matrix.source.syntax import Definition, in_head, is_docstring, statements_in
from whichtorch.matrix.triage.minimise.arguments import given_values, inlined
from whichtorch.matrix.triage.minimise.tree_edit import Edit, InvalidEditError, copied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.edit_search import ReductionState
    from whichtorch.matrix.triage.minimise.tree_edit import Program

_CALLED = ("__call__", "forward")  # what a call of an object runs


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
            for stand_in in ("", *_objects_in(node)):
                with suppress(InvalidEditError):
                    yield _SingleInstance(node, call, layout, stand_in).edit()


def _objects_in(node: ast.ClassDef) -> list[str]:
    """Return the names of the fields that hold an object that a class makes itself, the last one first."""
    found = []
    for statement in statements_in(node):
        match statement:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call()):
                found.append(name)
    return found[::-1]


@dataclass(slots=True)
class _SingleInstance:
    """One class and the only call that makes an object of it."""

    node: ast.ClassDef
    call: ast.Call
    layout: Layout
    stand_in: str = ""  # the field that is used where the whole object was

    def edit(self) -> Edit:
        """Return the edit that leaves neither class nor object. Raises InvalidEditError where they are needed."""
        methods = self._methods()
        fields = self._fields()
        names = self._names(methods, fields)
        replaced: dict[ast.AST, list[ast.AST]] = {}
        statement = self.layout.statement(self.call)
        assert statement is not None
        above = self._made(names)
        uses = self._uses(statement)
        for use in uses:
            replaced |= self._replaced_use(use, names)
        functions = [self._function(method, names) for name, method in methods.items() if name != "__init__"]
        replaced[self.node] = [*functions]
        is_bound = uses != [self.call]
        kept: list[ast.stmt] = [] if is_bound else [statement]
        if replaced.keys() & {statement}:
            raise InvalidEditError
        replaced[statement] = [*above, *kept]
        return Edit(key=f"single instance {self.node.name} {self.stand_in}", replaced=replaced)

    def _methods(self) -> dict[str, ast.FunctionDef]:
        found = {}
        for statement in self.node.body:
            if isinstance(statement, ast.FunctionDef) and not statement.decorator_list and statement.args.args:
                found[statement.name] = statement
            elif isinstance(statement, Definition):
                raise InvalidEditError
        return found

    def _fields(self) -> set[str]:
        """Return the names of what the object itself holds."""
        found = set(self._class_values())
        for method in statements_in(self.node):
            for node in in_head(method):
                match node:
                    case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                        found.add(name)
        return found

    def _class_values(self) -> dict[str, ast.expr]:
        found = {}
        for statement in self.node.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=value):
                    found[name] = value or ast.Constant(value=None)
                case ast.FunctionDef() | ast.Pass():
                    pass
                case _ if not is_docstring(statement):
                    raise InvalidEditError
        return found

    def _names(self, methods: dict[str, ast.FunctionDef], fields: set[str]) -> dict[str, str]:
        """Return what fields and methods are called outside of the class."""
        found: dict[str, str] = {}
        for name in sorted(fields | set(methods)):
            plain = self.node.name.lower() if name.startswith("__") else name
            is_free = name in methods and self.layout.stores[name] == 1 and name not in self.layout.loads
            found[name] = plain if is_free and plain == name else self.layout.fresh(plain, found.values())
        return found

    def _function(self, method: ast.FunctionDef, names: dict[str, str]) -> ast.FunctionDef:
        """Return a method as a function of the module."""
        plain = copied([method], self._without_self(method, names))[0]
        plain.name = names[method.name]
        plain.args.args = plain.args.args[1:]
        if len(plain.args.defaults) > len(plain.args.args):
            raise InvalidEditError
        stored = {
            node.attr
            for node in ast.walk(method)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value)
        }
        if stored:
            plain.body = [ast.Global(names=[names[name] for name in sorted(stored)]), *plain.body]
        return plain

    def _without_self(self, method: ast.FunctionDef, names: dict[str, str]) -> dict[ast.AST, list[ast.AST]]:
        """Return what stands in place of `self.x`, and nothing for `super().__init__()`."""
        if method.args.args[0].arg != "self":
            raise InvalidEditError
        found: dict[ast.AST, list[ast.AST]] = {}
        allowed = set()
        for node in ast.walk(method):
            match node:
                case ast.Attribute(value=ast.Name(id="self") as owner, attr=name, ctx=context):
                    if name not in names:
                        raise InvalidEditError
                    found[node] = [ast.Name(id=names[name], ctx=context)]
                    allowed.add(owner)
                case ast.Call(func=ast.Name(id="self") as owner):
                    called = next((name for name in _CALLED if name in names), None)
                    if called is None:
                        raise InvalidEditError
                    found[owner] = [ast.Name(id=names[called], ctx=ast.Load())]
                    allowed.add(owner)
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr="__init__"))):
                    found[node] = []
                    allowed |= {each for each in ast.walk(node) if isinstance(each, ast.Name)}
        if any(_is_self(node) and node not in allowed for node in ast.walk(method)):
            raise InvalidEditError
        if any(isinstance(node, ast.Name) and node.id == "super" and node not in allowed for node in ast.walk(method)):
            raise InvalidEditError
        return found

    def _made(self, names: dict[str, str]) -> list[ast.stmt]:
        """Return what makes the object's fields, in place of the call."""
        values = self._class_values()
        found: list[ast.stmt] = [
            ast.copy_location(ast.Assign(targets=[ast.Name(id=names[name], ctx=ast.Store())], value=value), self.call)
            for name, value in values.items()
        ]
        maker = next(
            (each for each in self.node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None
        )
        if maker is None:
            return self._filled(names, values)
        plain = copied([maker], self._without_self(maker, names))[0]
        plain.args.args = plain.args.args[1:]
        body = inlined(plain, self.call, self.layout)
        if body is None:
            raise InvalidEditError
        return [*found, *body.above]

    def _filled(self, names: dict[str, str], values: dict[str, ast.expr]) -> list[ast.stmt]:
        """Return what makes the fields of a class that says what they are, as a dataclass does."""
        listed = [
            each for each in self.node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        ]
        parameters = [ast.arg(arg=each.target.id) for each in listed if isinstance(each.target, ast.Name)]
        defaults = [each.value or ast.Constant(value=None) for each in listed]
        fields = ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=defaults)
        given = given_values(fields, self.call)
        if given is None:
            raise InvalidEditError
        return [
            ast.copy_location(ast.Assign(targets=[ast.Name(id=names[name], ctx=ast.Store())], value=value), self.call)
            for name, value in (values | given).items()
        ]

    def _uses(self, statement: ast.stmt) -> list[ast.expr]:
        """Return where the object is used. Raises InvalidEditError where it may get about further."""
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is self.call:
                if self.layout.times_bound(name, statement) != 1:
                    raise InvalidEditError
                return [*self.layout.reads(name, statement)]
            case _:
                return [self.call]

    def _replaced_use(self, use: ast.expr, names: dict[str, str]) -> dict[ast.AST, list[ast.AST]]:
        """Return what stands in place of a use of the object."""
        outer = self.layout.parents[use]
        called = next((names[name] for name in _CALLED if name in names), None)
        match outer:
            case ast.Attribute(attr=name, ctx=context) if name in names and not name.startswith("__"):
                return {outer: [ast.Name(id=names[name], ctx=context)]}
            case ast.Subscript(slice=place, ctx=ast.Load()) if "__getitem__" in names and outer.value is use:
                function = ast.Name(id=names["__getitem__"], ctx=ast.Load())
                return {outer: [ast.Call(func=function, args=[place], keywords=[])]}
            case ast.Call(func=ast.Name(id="iter")) if "__iter__" in names:
                return {outer: [ast.Call(func=ast.Name(id=names["__iter__"], ctx=ast.Load()), args=[], keywords=[])]}
            case ast.For() if "__iter__" in names:
                return {use: [ast.Call(func=ast.Name(id=names["__iter__"], ctx=ast.Load()), args=[], keywords=[])]}
            case _ if self.stand_in:
                return {use: [ast.Name(id=names[self.stand_in], ctx=ast.Load())]}
            case ast.Attribute():
                raise InvalidEditError
            case ast.Expr():
                return {outer: []}
            case _ if called is not None:
                return {use: [ast.Name(id=called, ctx=ast.Load())]}
            case _ if "__getitem__" in names:  # a list of the first items does what the sequence did
                function = ast.Name(id=names["__getitem__"], ctx=ast.Load())
                items = [ast.Call(func=function, args=[ast.Constant(value=place)], keywords=[]) for place in range(2)]
                return {use: [ast.List(elts=[*items], ctx=ast.Load())]}
            case _:
                raise InvalidEditError


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
