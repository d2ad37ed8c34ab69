"""Values of a running script -> JSON that says how a line of another script can make them again.

    None, true, false                         as they are
    {"literal": "3"}                          an expression that needs only `import torch`
    {"list": [...]}, {"tuple": [...]}         of such
    {"tensor": [2, 3], "dtype": ..., ...}     a tensor by its shape, and by its values where these are wanted
    {"unknown": "Counter"}                    what no line can make

A Recorder writes down the values of some names at some places of a script. The script's source was changed so that it
calls `record` there.

Runs in the environments under test, under any Python that has torch wheels, with the standard library only.
"""
# ruff: noqa: PTH123

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LONGEST = 200  # elements of a list, characters of a text: what is longer is not to be written in a line
_PLAIN = (int, float, complex, str)
_MOST_VALUES = 64  # elements of a tensor whose values a Recorder writes
_MISSING = object()


def described(torch: Any, value: Any, most_values: int = 0) -> Any:
    """Return what a value is; with the values of tensors of at most so many elements."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) in _PLAIN:
        return {"literal": repr(value)} if len(repr(value)) < LONGEST else {"unknown": type(value).__name__}
    if isinstance(value, torch.Tensor):
        return described_tensor(torch, value, most_values)
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"literal": str(value)}
    if isinstance(value, torch.device):
        return {"literal": repr(str(value))}
    if isinstance(value, torch.nn.Module):
        return described_module(torch, value)
    if type(value).__name__ in {"SymInt", "SymFloat", "SymBool"}:
        return {"literal": repr(value.node.hint)}
    if isinstance(value, (list, tuple)) and len(value) < LONGEST:
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [described(torch, each, most_values) for each in value]}
    return {"unknown": type(value).__name__}


def described_tensor(torch: Any, tensor: Any, most_values: int) -> Any:
    """Return the shape of a tensor, and all else that a new one of its kind needs."""
    kind = type(tensor)
    is_fake = kind.__name__ == "FakeTensor"
    if kind not in {torch.Tensor, torch.nn.Parameter} and not is_fake:
        return {"unknown": kind.__name__}
    try:
        shown = {
            "tensor": list(map(int, tensor.shape)),
            "dtype": str(tensor.dtype),
            "device": str(tensor.device),
            "stride": list(map(int, tensor.stride())) if tensor.layout is torch.strided else None,
            "layout": str(tensor.layout),
            "requires_grad": tensor.requires_grad and tensor.is_leaf,
            "parameter": kind is torch.nn.Parameter,
            "fake": is_fake,
        }  # type: dict[str, Any]
    except Exception:  # noqa: BLE001  # a tensor that does not say what it is cannot be written
        return {"unknown": kind.__name__}
    if not is_fake and tensor.device.type == "cpu" and tensor.numel() <= most_values:
        shown["values"] = repr(tensor.detach().tolist())
    return shown


def described_module(torch: Any, module: Any) -> Any:
    """Return the call that makes such a module, where torch brings its class and its text is that call."""
    kind = type(module)
    if not str(kind.__module__).startswith("torch.nn.modules.") or getattr(torch.nn, kind.__name__, None) is not kind:
        return {"unknown": kind.__name__}
    if kind in {torch.nn.Sequential, torch.nn.ModuleList}:
        made_by = "torch.nn." + kind.__name__
        inner = [described(torch, each) for each in module]
        return {"called": made_by, "with": inner if kind is torch.nn.Sequential else [{"list": inner}]}
    text = repr(module)
    try:
        made = eval(text, dict(vars(torch.nn)))  # noqa: S307  # what torch itself has written
    except Exception:  # noqa: BLE001
        return {"unknown": kind.__name__}
    return {"literal": "torch.nn." + text} if type(made) is kind else {"unknown": kind.__name__}


class Recorder:
    """Keeps the values at each place, and writes them to a file.

    The file holds a JSON object with each place as it was when it was last reached:
    {place: {path: what `described` says}}. A path is a name, or a name with attributes: "self.weight".
    """

    def __init__(self, file: str, paths: dict[str, list[str]]) -> None:
        self.file, self.paths = file, paths
        self.places = {}  # type: dict[str, dict[str, Any]]
        self.owner = os.getpid()

    def record(self, place: str, names: dict[str, Any]) -> None:
        """Write down the values of a place's paths."""
        if os.getpid() != self.owner:
            return
        import torch

        with torch._C.DisableTorchFunction():
            self.places[place] = {
                path: described(torch, value, _MOST_VALUES)
                for path in self.paths[place]
                for value in [value_at(names, path)]
                if value is not _MISSING
            }
        whole = self.file + ".new"
        with open(whole, "w", encoding="utf-8") as file:
            json.dump(self.places, file)
        os.replace(whole, self.file)  # noqa: PTH105


def value_at(names: dict[str, Any], path: str) -> Any:
    """Return what a path leads to, _MISSING where it leads nowhere."""
    first, *attributes = path.split(".")
    value = names.get(first, _MISSING)
    try:
        for attribute in attributes:
            value = getattr(value, attribute)
    except Exception:  # noqa: BLE001  # whatever an attribute does when it is asked for
        return _MISSING
    return value
