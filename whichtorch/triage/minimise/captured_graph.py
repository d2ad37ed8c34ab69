"""The graph that Dynamo gave to a backend -> a script that compiles a function of as few of its nodes as still fail.

The start-up hook `compile_layer` writes the graph down, with the shape of each of its values, so that any row of its
nodes can stand alone: what such nodes read of others is made anew.
"""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from whichtorch.search.delta import lowest
from whichtorch.source.names import compiles, dotted, loads_in, stores_in
from whichtorch.source.syntax import parse_module
from whichtorch.triage.minimise.script_places import outermost_chains
from whichtorch.triage.minimise.standalone_script import (
    UnwritableError,
    compiled_function,
    expression_of,
    tensor_expression,
)
from whichtorch.triage.minimise.tree_edit import copied

if TYPE_CHECKING:
    from whichtorch.triage.case import CompileCall

_MODULES = ("math", "operator")  # that a graph's code may read without an import
_NAMES = ("device", "inf", "nan")  # of torch, likewise
_BACKWARD = "for output in torch.utils._pytree.tree_leaves(outputs):\n    output.sum().backward()\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedGraph:
    """A graph, and how a script of it is written."""

    nodes: tuple[ast.stmt, ...]  # in their order, without its inputs and outputs
    outputs: ast.stmt
    values: dict[str, Any]  # what each input and node comes to, by name
    attributes: dict[str, Any]  # what of its module it reads, by path
    call: CompileCall
    context: str = ""  # lines before all others
    with_values: bool = False  # small inputs are those that there were, instead of new ones
    is_backward: bool = False  # gradients are asked for, too

    @classmethod
    def read(cls, noted: str, call: CompileCall) -> CapturedGraph | None:
        """Return the graph that the hook has written; None where it wrote nothing that can be read."""
        try:
            graph = json.loads(noted)
            nodes = ast.walk(parse_module(graph["code"]))
            body = next(node for node in nodes if isinstance(node, ast.FunctionDef)).body
        except (SyntaxError, ValueError, TypeError, KeyError, StopIteration):
            return None
        own = tuple(each for each in body[:-1] if isinstance(each, ast.Assign) and not _is_alias(each))
        return cls(nodes=own, outputs=body[-1], values=graph["values"], attributes=graph["attributes"], call=call)

    def smallest(self, context: str) -> Generator[str, bool, str | None]:
        """Return the script of the shortest row of nodes that was found to fail, None where not even all of them do.

        First with new inputs, then with the values that they had; alone, and after `context`, what the script itself
        has run by then.
        """
        for graph in self._variants(context):
            if (yield from _fails(graph.script(0, len(graph.nodes)))):
                return (yield from graph._shortest())
        return None

    def _shortest(self) -> Generator[str, bool, str]:
        """Return the script of the shortest row of nodes; the whole graph is known to fail."""
        count = len(self.nodes)
        last = yield from lowest(lambda end: _fails(self.script(0, end)), 1, count)
        length = yield from lowest(lambda length: _fails(self.script(last - length, last)), 1, last)
        row = self.script(last - length, last)
        return row if (yield from _fails(row)) else self.script(0, count)

    def _variants(self, context: str) -> Iterator[CapturedGraph]:
        has_gradients = any(isinstance(told, dict) and told.get("requires_grad") for told in self.values.values())
        choices = itertools.product(dict.fromkeys(("", context)), (False, True), (False, True)[: 1 + has_gradients])
        for before, with_values, is_backward in choices:
            yield replace(self, context=before, with_values=with_values, is_backward=is_backward)

    def script(self, first: int, end: int) -> str:
        """Return the script of a row of nodes, "" where it cannot be written."""
        body = [*self.nodes[first:end], self._returned(end)]
        bound = {"self", *stores_in(*body)}
        read = [name for name in loads_in(*body) if name not in bound]  # a graph binds no name twice
        attributes = list(outermost_chains(body))
        try:
            inputs = {name: expression_of(self.values[name], self._tensor) for name in read if name in self.values}
            names = {path: path.replace(".", "_") for path in self.attributes if path in map(_path, attributes)}
            modules = [f"{name} = {expression_of(self.attributes[path], self._tensor)}" for path, name in names.items()]
            replaced: dict[ast.AST, list[ast.AST]] = {
                node: [ast.Name(id=names[_path(node)], ctx=ast.Load())] for node in attributes if _path(node) in names
            }
            function, called = compiled_function(copied(body, replaced), inputs, self.call)
        except UnwritableError:
            return ""
        heads = [] if "import torch" in self.context.splitlines() else ["import torch"]
        heads += [f"import {name}" for name in _MODULES if name in read]
        heads += [f"from torch import {name}" for name in _NAMES if name in read]
        return (
            self.context
            + "\n".join([*heads, *modules, function, f"outputs = {called}\n"])
            + (_BACKWARD if self.is_backward else "")
        )

    def _returned(self, end: int) -> ast.stmt:
        if end == len(self.nodes):
            return self.outputs
        last = self.nodes[end - 1]
        assert isinstance(last, ast.Assign)
        return parse_module(f"return {ast.unparse(last.targets[0])}").body[0]

    def _tensor(self, told: dict[str, Any]) -> str:
        return tensor_expression(told | {"fake": False, "parameter": False}, with_values=self.with_values)


def _fails(script: str) -> Generator[str, bool, bool]:
    """Ask whether a script fails; what cannot be written or compiled does not."""
    return bool(script) and compiles(script) and (yield script)


def _is_alias(statement: ast.Assign) -> bool:
    """Return whether a statement gives an input its name, or frees what is needed no more."""
    return isinstance(statement.value, ast.Name) or ast.unparse(statement.value) == "None"


def _path(node: ast.AST) -> str:
    """Return what of its module a node reads, "" where it is no attribute of it."""
    first, _, attributes = dotted(node).partition(".")
    return attributes if first == "self" else ""
