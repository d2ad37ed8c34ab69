"""What `described_values.py` tells of values -> lines of a script that make such values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# types that have no random numbers between 0 and 1
_COUNTED = frozenset(["torch.bool", "torch.uint8", "torch.int8", "torch.int16", "torch.int32", "torch.int64"])


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


def tensors_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the tensors of a value."""
    if isinstance(value, dict) and "tensor" in value:
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(each)
