"""A script of one place, one call of torch or one captured graph alone, with the values that it had there.

Tensors are made anew, modules of torch by their own text, and attributes of an object become names, so that the object
itself is not needed. The start-up hook `last_operator` writes the calls of torch that were under way, the outermost
first; `described_values.py` tells their values.

The hook `compile_layer` writes down the graph that Dynamo gave to a backend, with the shape of each of its values, so
that any row of its nodes can stand alone: what such nodes read of others is made anew. The script compiles a function
of as few of them as still fail.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from textwrap import indent
from typing import TYPE_CHECKING, Any

from whichtorch.search.delta import lowest
from whichtorch.source.names import GIVEN, compiles, dotted, loads_in, stores_in
from whichtorch.source.syntax import parse_expression, parse_module
from whichtorch.triage.minimise.script_places import ScriptPlace, ScriptPlaces, needed_by, outermost_chains
from whichtorch.triage.minimise.tree_edit import InvalidEditError, copied, load

if TYPE_CHECKING:
    from whichtorch.triage.case import CompileCall

# types that have no random numbers between 0 and 1
_COUNTED = frozenset(["torch.bool", "torch.uint8", "torch.int8", "torch.int16", "torch.int32", "torch.int64"])
LEAST_GAIN = 0.75  # of the script's text: what is longer is no smaller script
_METHOD = "torch.Tensor."
_FUNCTIONS = {"__int__": "int", "__float__": "float", "__bool__": "bool", "__len__": "len", "__neg__": "-"}
_OPERATORS = {  # of Python, for which a method stands
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
    "__matmul__": "@", "__pow__": "**", "__and__": "&", "__or__": "|", "__xor__": "^", "__lt__": "<", "__le__": "<=",
    "__gt__": ">", "__ge__": ">=", "__eq__": "==", "__ne__": "!=",
}  # fmt: skip

_MODULES = ("math", "operator")  # that a graph's code may read without an import
_NAMES = ("device", "inf", "nan")  # of torch, likewise
_BACKWARD = "for output in torch.utils._pytree.tree_leaves(outputs):\n    output.sum().backward()\n"


class UnwritableError(Exception):
    """A value that no line of a script can make."""


def expression_of(value: Any, tensor: Callable[[dict[str, Any]], str]) -> str:
    """Return the expression that makes a value, each tensor in it as a function writes it; raises UnwritableError."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if "literal" in value:
        return _literal(value["literal"])
    for kind, brackets in (("list", "[{}]"), ("tuple", "({})")):
        if kind in value:
            parts = [expression_of(each, tensor) for each in value[kind]]
            comma = "," if kind == "tuple" and len(parts) == 1 else ""
            return brackets.format(", ".join(parts) + comma)
    if "called" in value:
        return f"{value['called']}({', '.join(expression_of(each, tensor) for each in value['with'])})"
    if "tensor" in value:
        return tensor(value)
    raise UnwritableError(str(value))


def tensor_expression(told: dict[str, Any], *, with_values: bool = True) -> str:
    """Return the expression of a tensor or parameter of such a shape, type and layout; raises UnwritableError.

    Its values are those that were written, if there are any, or ones and random numbers.
    """
    text = _new_tensor(told if with_values else {name: value for name, value in told.items() if name != "values"})
    if told["parameter"]:
        return f"torch.nn.Parameter({text})" if told["requires_grad"] else f"torch.nn.Parameter({text}, False)"
    return f"{text}.requires_grad_()" if told["requires_grad"] else text


def _literal(text: str) -> str:
    return f"float('{text}')" if text in {"nan", "inf", "-inf"} else text


def _new_tensor(told: dict[str, Any]) -> str:
    """Return the expression of a tensor: its values where they were written, else ones or random numbers."""
    shape, dtype, device = told["tensor"], told["dtype"], told["device"]
    if told["layout"] != "torch.strided":
        raise UnwritableError(told["layout"])
    options = (f", dtype={dtype}" if dtype != "torch.float32" else "") + (
        f", device='{device}'" if device != "cpu" else ""
    )
    has_numbers = dtype not in _COUNTED and device == "cpu" and not told["fake"]
    maker = "rand" if has_numbers else "ones"
    if "values" in told and 0 not in shape:
        values = re.sub(r"(?<![\w.])(-?)(nan|inf)\b", r"float('\1\2')", told["values"])
        text = f"torch.tensor({values}, dtype={dtype})"
        if 0 in told["stride"] or _is_contiguous(shape, told["stride"]):  # nothing can be copied into an expanded one
            return text
        return f"torch.empty_strided({tuple(shape)}, {tuple(told['stride'])}{options}).copy_({text})"
    if _is_contiguous(shape, told["stride"]):
        return f"torch.{maker}({', '.join(map(str, shape)) or '()'}{options})"
    count = 1 + sum((size - 1) * step for size, step in zip(shape, told["stride"], strict=True))
    return f"torch.{maker}({count}{options}).as_strided({tuple(shape)}, {tuple(told['stride'])})"


def _is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether elements lie in order, without gaps; what has at most one element always does."""
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return 0 in shape
        expected *= max(size, 1)
    return True


def tensors_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the tensors of a value."""
    if isinstance(value, dict) and "tensor" in value:
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(each)


def scripts_of_places(script: ScriptPlaces, recorded: str, call: CompileCall | None) -> Iterator[str]:
    """Yield a script for each place that was reached; first with new tensors, then with the values they had.

    Each stands alone first, then after what the script has registered and set by then.

    `call` is how the script compiles or exports; None where it does neither.
    """
    try:
        known = json.loads(recorded)
    except ValueError:
        return
    seen = set[str]()
    longest = LEAST_GAIN * len(ast.unparse(script.tree))
    reached = [place for place in script.places if place.key in known]
    for with_values, always, place in itertools.product((False, True), ((), script.registering), reached):
        piece = _PlaceScript(place, known[place.key], script, with_values=with_values)
        try:
            text = _script_of_place(piece, call if place.is_compiled else None, always)
        except (UnwritableError, InvalidEditError):
            continue
        if text not in seen and len(text) < longest and compiles(text):
            seen.add(text)
            yield text


def _script_of_place(piece: _PlaceScript, call: CompileCall | None, always: Collection[ast.stmt]) -> str:
    """Return the lines that make what a piece reads, and the piece. Raises UnwritableError."""
    body, script = piece.body(), piece.script
    driver = _driver(body, piece.tensors, call) if call else _plain(body, piece.tensors, piece.place)
    own = "\n".join([*(f"{name} = {text}" for name, text in piece.made.items()), driver])
    return f"{needed_by(parse_module(own), script.tree, always)}{own}\n"


class _PlaceScript:
    """The statements of a place, with what its names stood for."""

    def __init__(
        self, place: ScriptPlace, recorded: dict[str, Any], script: ScriptPlaces, *, with_values: bool
    ) -> None:
        self.place, self.recorded, self.script = place, recorded, script
        self.with_values = with_values
        self.made: dict[str, str] = {}  # name -> expression of what is neither a tensor nor plain
        self.tensors: dict[str, str] = {}  # name -> expression
        self._names = {*stores_in(*place.body), *loads_in(*place.body), *script.defined}
        self._known: dict[str, ast.expr] = {}  # path -> what stands in its place

    def body(self) -> list[ast.stmt]:
        """Return the statements; raises UnwritableError where one of them needs what cannot be made."""
        replaced: dict[ast.AST, list[ast.AST]] = {}
        for target in (node for each in self.place.body for node in ast.walk(each) if isinstance(node, ast.Attribute)):
            if not isinstance(target.ctx, ast.Load) and dotted(target).partition(".")[0] in self.recorded:
                raise UnwritableError(ast.unparse(target))  # it is set of an object that will not be there
        for node in outermost_chains(self.place.body):
            parts = dotted(node).split(".")
            root = parts[0]
            if root in self.script.defined or root in GIVEN or root not in self.recorded:
                continue
            for length in range(1, len(parts) + 1):
                path = ".".join(parts[:length])
                if _is_writable(self.recorded.get(path, {"unknown": ""})):
                    break
            else:
                if root in self.script.assigned and root not in self.place.parameters:
                    continue  # the script makes it for all of its functions
                raise UnwritableError(".".join(parts))
            replaced[_without(node, len(parts) - length)] = [self._placed(path)]
        return copied(self.place.body, replaced)

    def _placed(self, path: str) -> ast.expr:
        if path not in self._known:
            self._known[path] = self._new(path, self.recorded[path])
        return self._known[path]

    def _new(self, path: str, told: Any) -> ast.expr:
        text = expression_of(told, self._tensor)
        if any(tensors_in(told)):
            return load(self._named(path, text, self.tensors))
        if isinstance(told, dict) and "torch.nn." in text:
            return load(self._named(path, text, self.made))
        return parse_expression(text)

    def _named(self, path: str, text: str, kept: dict[str, str]) -> str:
        name = path.rpartition(".")[2]
        while name in self.made or name in self.tensors or (name in self._names and name != path):
            name += "_"
        kept[name] = text
        return name

    def _tensor(self, told: dict[str, Any]) -> str:
        if told["fake"]:
            raise UnwritableError("FakeTensor")
        return tensor_expression(told, with_values=self.with_values)


def _without(node: ast.AST, attributes: int) -> ast.AST:
    """Return an expression without so many attributes at its end."""
    for _ in range(attributes):
        assert isinstance(node, ast.Attribute)
        node = node.value
    return node


def _is_writable(told: Any) -> bool:
    try:
        expression_of(told, tensor_expression)
    except UnwritableError:
        return False
    return True


def _driver(body: Sequence[ast.stmt], tensors: dict[str, str], call: CompileCall) -> str:
    """Return the definition of a function or module of a body, and the call that compiles or exports it."""
    if call.call == "export":
        strict = "" if call.strict is None else f", strict={call.strict}"
        arguments = "".join(f"{each}, " for each in tensors.values())
        names = ", ".join(["self", *tensors])
        head = f"class Module(torch.nn.Module):\n    def forward({names}):\n"
        text = indent(_written(_returning(body)), " " * 8)
        return f"{head}{text}\ntorch.export.export(Module(), ({arguments.rstrip()}){strict})"
    return "\n".join(compiled_function(_returning(body), tensors, call))


def compiled_function(body: Sequence[ast.stmt], inputs: Mapping[str, str], call: CompileCall) -> tuple[str, str]:
    """Return the definition of a function, and the expression that compiles it, as a script did its own, and calls it.

    Raises UnwritableError.
    """
    if call.own and not call.backend.isidentifier():
        raise UnwritableError(call.backend)
    options = [] if call.backend == "inductor" else [f"backend={call.backend if call.own else repr(call.backend)}"]
    options += ["fullgraph=True"] if call.fullgraph else []
    options += [f"dynamic={call.dynamic}"] if call.dynamic is not None else []
    compiled = f"torch.compile({', '.join(['function', *options])})"
    return _defined(body, inputs), f"{compiled}({', '.join(inputs.values())})"


def _defined(body: Sequence[ast.stmt], inputs: Iterable[str]) -> str:
    return f"def function({', '.join(inputs)}):\n{indent(_written(body), '    ')}"


def _plain(body: Sequence[ast.stmt], tensors: dict[str, str], place: ScriptPlace) -> str:
    """Return the lines of a body that is run as it is."""
    if not place.parameters and not any(isinstance(node, ast.Return) for each in body for node in ast.walk(each)):
        return "\n".join([*(f"{name} = {text}" for name, text in tensors.items()), _written(body)])
    return f"{_defined(_returning(body), tensors)}\nfunction({', '.join(tensors.values())})"


def _returning(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements that give their last value back, so that a compiler has something to compile."""
    last = body[-1]
    if isinstance(last, ast.Expr):
        return [*body[:-1], ast.Return(value=last.value)]
    if isinstance(last, ast.Assign) and isinstance(last.targets[0], (ast.Name, ast.Tuple)):
        return [*body, *parse_module(f"return {ast.unparse(last.targets[0])}").body]
    return list(body)


def _written(body: Sequence[ast.stmt]) -> str:
    return "\n".join(map(ast.unparse, body))


def calls_under_way(text: str) -> list[dict[str, Any]]:
    """Return the calls that the hook wrote, the innermost first; none where it wrote nothing whole."""
    try:
        calls = json.loads(text)
    except ValueError:
        return []
    return calls[::-1] if isinstance(calls, list) else []


def scripts_of_calls(calls: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a script for each call, the innermost first; those that cannot be written are left out."""
    for call in calls:
        with suppress(UnwritableError):
            yield _script_of_call(call)


def _script_of_call(call: dict[str, Any]) -> str:
    """Return the lines that make the arguments of a call, and the call."""
    tensors: list[dict[str, Any]] = []
    lines: list[str] = []

    def tensor(told: dict[str, Any]) -> str:
        if told["fake"]:
            raise UnwritableError("FakeTensor")
        name = "xyzuvw"[len(tensors)] if len(tensors) < 6 else f"x{len(tensors)}"
        tensors.append(told)
        lines.append(f"{name} = {tensor_expression(told)}")
        return name

    arguments = [expression_of(value, tensor) for value in call["args"]]
    keywords = [f"{name}={expression_of(value, tensor)}" for name, value in call["kwargs"].items()]
    lines.append(_written_call(call["name"], arguments, keywords))
    return "\n".join(["import torch", "", *lines]) + "\n"


def _written_call(name: str, arguments: Sequence[str], keywords: Sequence[str]) -> str:
    if name.startswith(_METHOD) and arguments:
        method = name.removeprefix(_METHOD)
        if method in _OPERATORS and len(arguments) == 2 and not keywords:
            return f"{arguments[0]} {_OPERATORS[method]} {arguments[1]}"
        if method in _FUNCTIONS and len(arguments) == 1:
            return f"{_FUNCTIONS[method]}({arguments[0]})"
        receiver, *rest = arguments
        return f"{receiver}.{method}({', '.join([*rest, *keywords])})"
    if not name.startswith("torch."):
        raise UnwritableError(name)
    return f"{name}({', '.join([*arguments, *keywords])})"


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
