"""The call of torch that a script ended in -> a script of that call alone.

The start-up hook `last_operator` writes the calls that were under way, the outermost first. The innermost one is the
shortest script; where that does not fail in the same way, the one around it is tried.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from whichtorch.matrix.triage.minimise.value_lines import UnwritableError, expression_of, tensor_expression, tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    tensors = tensors_in([call["args"], call["kwargs"]])
    return any(each["device"] == "cpu" and not each["fake"] and "values" not in each for each in tensors)


def _script(call: dict[str, Any]) -> str:
    """Return the lines that make the arguments of a call, and the call."""
    tensors: list[dict[str, Any]] = []
    lines: list[str] = []

    def tensor(told: dict[str, Any]) -> str:
        name = "xyzuvw"[len(tensors)] if len(tensors) < 6 else f"x{len(tensors)}"
        tensors.append(told)
        lines.append(f"{name} = {tensor_expression(told)}")
        return name

    arguments = [expression_of(value, tensor) for value in call["args"]]
    keywords = [f"{name}={expression_of(value, tensor)}" for name, value in call["kwargs"].items()]
    lines.append(_call(call["name"], arguments, keywords))
    is_fake = any(told["fake"] for told in tensors)
    contexts = ["FakeTensorMode(allow_non_fake_inputs=True)"] if is_fake else []
    contexts += [f"torch.{mode}()" for mode in call.get("modes", ())]
    for context in reversed(contexts):
        lines = [f"with {context}:", *(f"    {line}" for line in lines)]
    imports = ["from torch._subclasses.fake_tensor import FakeTensorMode"] if is_fake else []
    return "\n".join(["import torch", *imports, "", *lines]) + "\n"


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
