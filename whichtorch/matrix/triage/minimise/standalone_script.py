"""A statement or a function that a script failed in, with the values that it had there -> a script of that alone.

Tensors are made anew, modules of torch by their own text, and attributes of an object become names, so that the object
itself is not needed.
"""

from __future__ import annotations

import ast
import itertools
import json
from textwrap import indent
from typing import TYPE_CHECKING, Any

from whichtorch.matrix.source.names import GIVEN, compiles, dotted, loads_in, stores_in
from whichtorch.matrix.source.syntax import parse_expression, parse_module
from whichtorch.matrix.triage.minimise.script_places import needed_by, outermost_chains
from whichtorch.matrix.triage.minimise.tree_edit import InvalidEditError, copied, load
from whichtorch.matrix.triage.minimise.value_lines import UnwritableError, expression_of, tensor_expression, tensors_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from whichtorch.matrix.triage.failure_facts import CompileCall
    from whichtorch.matrix.triage.minimise.script_places import ScriptPlace, ScriptPlaces

LEAST_GAIN = 0.75  # of the script's text: what is longer is no smaller script


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
            text = _script(piece, call if place.is_compiled else None, always)
        except (UnwritableError, InvalidEditError):
            continue
        if text not in seen and len(text) < longest and compiles(text):
            seen.add(text)
            yield text


def _script(piece: _PlaceScript, call: CompileCall | None, always: Collection[ast.stmt]) -> str:
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
            if not isinstance(target.ctx, ast.Load) and not self.recorded.keys().isdisjoint(
                [dotted(target).partition(".")[0]]
            ):
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
        plain = path.rpartition(".")[2]
        name = plain
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
    return _defined(body, inputs), f"{compiled_call(call)}({', '.join(inputs.values())})"


def compiled_call(call: CompileCall) -> str:
    """Return the expression that compiles `function` as a script did its own. Raises UnwritableError."""
    if call.own and not call.backend.isidentifier():
        raise UnwritableError(call.backend)
    options = [] if call.backend == "inductor" else [f"backend={call.backend if call.own else repr(call.backend)}"]
    options += ["fullgraph=True"] if call.fullgraph else []
    options += [f"dynamic={call.dynamic}"] if call.dynamic is not None else []
    return f"torch.compile({', '.join(['function', *options])})"


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
