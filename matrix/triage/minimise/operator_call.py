"""The call of torch that a script ended in -> a script of that call alone.

The start-up hook `last_operator` writes the calls that were under way, the outermost first. The innermost one is the
shortest script; where that does not fail in the same way, the one around it is tried.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOOK = "last_operator"
VARIABLE = "WHICHTORCH_OPERATORS"
_METHOD = "torch.Tensor."
# types that have no random numbers between 0 and 1
_COUNTED = frozenset(["torch.bool", "torch.uint8", "torch.int8", "torch.int16", "torch.int32", "torch.int64"])
_OPERATORS = {  # of Python, for which a method stands
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
    "__matmul__": "@", "__pow__": "**", "__and__": "&", "__or__": "|", "__xor__": "^", "__lt__": "<", "__le__": "<=",
    "__gt__": ">", "__ge__": ">=", "__eq__": "==", "__ne__": "!=",
}  # fmt: skip


class UnwritableError(Exception):
    """A call has an argument that no line of a script can make."""


def under_way(text: str) -> list[dict[str, Any]]:
    """Return the calls that the hook wrote, the innermost first; none where it wrote nothing whole."""
    try:
        calls = json.loads(text)
    except ValueError:
        return []
    return calls[::-1] if isinstance(calls, list) else []


def scripts_of(calls: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a script for each call, the innermost first, without those that cannot be written."""
    for call in calls:
        try:
            yield _script(call)
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
    writer = _Lines()
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
        receiver, *rest = arguments
        return f"{receiver}.{method}({', '.join([*rest, *keywords])})"
    if not name.startswith("torch."):
        raise UnwritableError(name)
    return f"{name}({', '.join([*arguments, *keywords])})"


class _Lines:
    """The lines that make the arguments of one call."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_fake = False
        self._names: Counter[str] = Counter()

    def value(self, value: Any) -> str:
        """Return the expression of an argument."""
        if value is None or isinstance(value, bool):
            return repr(value)
        if "literal" in value:
            return _literal(value["literal"])
        for kind, brackets in (("list", "[{}]"), ("tuple", "({})")):
            if kind in value:
                parts = [self.value(each) for each in value[kind]]
                comma = "," if kind == "tuple" and len(parts) == 1 else ""
                return brackets.format(", ".join(parts) + comma)
        if "tensor" in value:
            return self.tensor(value)
        raise UnwritableError(str(value))

    def tensor(self, told: dict[str, Any]) -> str:
        """Return the name of a tensor of such a shape, type and layout, after the line that makes it."""
        self.is_fake = self.is_fake or told["fake"]
        text = _tensor(told)
        if told["parameter"]:
            text = f"torch.nn.Parameter({text})" if told["requires_grad"] else f"torch.nn.Parameter({text}, False)"
        elif told["requires_grad"]:
            text += ".requires_grad_()"
        number = self._names["x"]
        self._names["x"] += 1
        name = "xyzuvw"[number] if number < 6 else f"x{number}"
        self.lines.append(f"{name} = {text}")
        return name


def _literal(text: str) -> str:
    return f"float('{text}')" if text in {"nan", "inf", "-inf"} else text


def _tensor(told: dict[str, Any]) -> str:
    """Return the expression of a tensor: its values where they were written, else ones or random numbers."""
    shape, dtype, device = told["tensor"], told["dtype"], told["device"]
    if told["layout"] != "torch.strided":
        raise UnwritableError(told["layout"])
    options = (f", dtype={dtype}" if dtype != "torch.float32" else "") + (
        f", device='{device}'" if device != "cpu" else ""
    )
    has_numbers = dtype not in _COUNTED and device == "cpu" and not told["fake"]
    maker = "rand" if has_numbers else "ones"
    if "values" in told:
        values = re.sub(r"(?<![\w.])(-?)(nan|inf)\b", r"float('\1\2')", told["values"])
        text = f"torch.tensor({values}, dtype={dtype})"
        if _is_contiguous(shape, told["stride"]):
            return text
        return f"torch.empty_strided({tuple(shape)}, {tuple(told['stride'])}{options}).copy_({text})"
    single = [1 if step == 0 else size for size, step in zip(shape, told["stride"], strict=True)]
    order = sorted(range(len(shape)), key=lambda dim: (-told["stride"][dim], dim))
    if _is_contiguous(single, told["stride"]):
        text = f"torch.{maker}({_sizes(single)}{options})"
    elif _is_contiguous([single[dim] for dim in order], [told["stride"][dim] for dim in order]):
        back = [order.index(dim) for dim in range(len(shape))]
        text = f"torch.{maker}({_sizes([single[dim] for dim in order])}{options}).permute({_sizes(back)})"
    else:
        fill = "uniform_()" if has_numbers else "fill_(1)"
        text = f"torch.empty_strided({tuple(single)}, {tuple(told['stride'])}{options}).{fill}"
    return text if single == shape else f"{text}.expand({_sizes(shape)})"


def _sizes(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "()"


def _is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether elements lie in order, without gaps; what has at most one element always does."""
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return 0 in shape
        expected *= max(size, 1)
    return True
