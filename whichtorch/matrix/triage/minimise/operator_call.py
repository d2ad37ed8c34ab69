"""The call of torch that a script ended in -> a script of that call alone.

The start-up hook `last_operator` writes the calls that were under way, the outermost first. The innermost one is the
shortest script; where that does not fail in the same way, the one around it is tried.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from whichtorch.matrix.triage.minimise.value_lines import UnwritableError, ValueLines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOOK = "last_operator"
VARIABLE = "WHICHTORCH_OPERATORS"
_METHOD = "torch.Tensor."
_FUNCTIONS = {"__int__": "int", "__float__": "float", "__bool__": "bool", "__len__": "len", "__neg__": "-"}
_OPERATORS = {  # of Python, for which a method stands
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
    "__matmul__": "@", "__pow__": "**", "__and__": "&", "__or__": "|", "__xor__": "^", "__lt__": "<", "__le__": "<=",
    "__gt__": ">", "__ge__": ">=", "__eq__": "==", "__ne__": "!=",
}  # fmt: skip


def under_way(text: str) -> list[dict[str, Any]]:
    """Return the calls that the hook wrote, the innermost first; none where it wrote nothing whole."""
    try:
        calls = json.loads(text)
    except ValueError:
        return []
    return calls[::-1] if isinstance(calls, list) else []


def scripts_of(calls: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a script for each call, the innermost first, with its modes where plain ones are not enough.

    Calls that cannot be written are left out.
    """
    for call, has_modes in itertools.product(calls, (False, True)):
        if has_modes and not call.get("modes"):
            continue
        try:
            yield _script(call if has_modes else call | {"modes": []})
        except UnwritableError:
            continue


def has_large_values(call: dict[str, Any]) -> bool:
    """Return whether a call takes a tensor on the CPU, whose values were not written."""
    return any(each["device"] == "cpu" and not each["fake"] and "values" not in each for each in _tensors(call))


def _tensors(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    def walk(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, list):
            for each in value:
                yield from walk(each)
        elif isinstance(value, dict):
            if "tensor" in value:
                yield value
            else:
                yield from walk(list(value.values()))

    yield from walk([call["args"], list(call["kwargs"].values())])


def _script(call: dict[str, Any]) -> str:
    """Return the lines that make the arguments of a call, and the call."""
    writer = ValueLines()
    arguments = [writer.value(value) for value in call["args"]]
    keywords = [f"{name}={writer.value(value)}" for name, value in call["kwargs"].items()]
    line = _call(call["name"], arguments, keywords)
    lines = ["import torch"]
    indent = ""
    if writer.is_fake:
        lines.append("from torch._subclasses.fake_tensor import FakeTensorMode")
    lines.append("")
    if writer.is_fake:
        lines.append("with FakeTensorMode(allow_non_fake_inputs=True):")
        indent = "    "
    for mode in call.get("modes", ()):
        lines.append(f"{indent}with torch.{mode}():")
        indent += "    "
    return "\n".join([*lines, *(f"{indent}{each}" for each in (*writer.lines, line))]) + "\n"


def _call(name: str, arguments: Sequence[str], keywords: Sequence[str]) -> str:
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
