"""Write down the call of torch that is being made, so that it is known which one a script ended in.

WHICHTORCH_OPERATORS is a JSON object: "file" is written anew before each call of a function or method of torch, with
all calls that are under way, the outermost first; what raised stays as it was when it raised. With "values_at", the
number of a call, the values of its tensors are written, too, where they are not too many.

A start-up hook: it runs in the environments under test, before a script. It needs torch.overrides, of torch 1.13 on.
"""
# ruff: noqa: PTH123

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

ASKED: dict[str, Any] = json.loads(os.environ.get("WHICHTORCH_OPERATORS", "{}"))
MOST_VALUES = 4096  # elements of a tensor whose values are written
LONGEST = 200  # elements of a list, characters of a text: a call with more is not one to be written as a line


def install(after_import: Callable[[str, Callable[[Any], object]], None]) -> None:
    """Watch all calls from the end of `import torch` on."""
    after_import("torch", _watch)


def _watch(torch: Any) -> None:
    from torch.overrides import TorchFunctionMode, resolve_name

    writer = _Writer(torch)

    class Watching(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            is_operator = type(func).__name__ in {"OpOverload", "OpOverloadPacket"}
            name = f"torch.ops.{func}" if is_operator else resolve_name(func) or ""
            if not name or name.endswith(("__get__", "__set__", "__repr__", "__format__")):
                return func(*args, **kwargs)
            writer.begin(name, args, kwargs)
            try:
                return func(*args, **kwargs)  # what it calls itself is not watched: it would come here again
            finally:
                writer.end()  # the file shows the calls that were under way when the last of all began

    Watching().__enter__()


class _Writer:
    """The calls under way, in a file that is written anew for each."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.file = open(ASKED["file"], "w", encoding="utf-8")  # noqa: SIM115  # as long as the process
        self.owner = os.getpid()
        self.calls: list[dict[str, Any]] = []
        self.number = 0

    def begin(self, name: str, args: Any, kwargs: Any) -> None:
        if os.getpid() != self.owner:
            return
        self.number += 1
        has_values = ASKED.get("values_at") == self.number
        with self.torch._C.DisableTorchFunction():
            call = {
                "name": name,
                "number": self.number,
                "args": [self.described(value, has_values) for value in args],
                "kwargs": {key: self.described(value, has_values) for key, value in kwargs.items()},
                "modes": _modes(self.torch),
            }
        self.calls.append(call)
        self.write()

    def end(self) -> None:
        if os.getpid() == self.owner:
            self.calls.pop()

    def write(self) -> None:
        self.file.seek(0)
        self.file.truncate()
        json.dump(self.calls[-8:], self.file)
        self.file.flush()

    def described(self, value: Any, has_values: bool) -> Any:
        """Return a value as JSON that says what it is; {"unknown": type} for what cannot be written in a script."""
        torch = self.torch
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float, complex, str)) and type(value) in {int, float, complex, str}:
            return {"literal": repr(value)} if len(repr(value)) < LONGEST else {"unknown": type(value).__name__}
        if isinstance(value, torch.Tensor):
            return self.tensor(value, has_values)
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return {"literal": str(value)}
        if isinstance(value, torch.device):
            return {"literal": repr(str(value))}
        if isinstance(value, (list, tuple)) and len(value) < LONGEST:
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.described(each, has_values) for each in value]}
        return {"unknown": type(value).__name__}

    def tensor(self, tensor: Any, has_values: bool) -> Any:
        torch = self.torch
        kind = type(tensor)
        is_fake = kind.__name__ == "FakeTensor"
        if kind not in {torch.Tensor, torch.nn.Parameter} and not is_fake:
            return {"unknown": kind.__name__}
        try:
            shown: dict[str, Any] = {
                "tensor": list(map(int, tensor.shape)),
                "dtype": str(tensor.dtype),
                "device": str(tensor.device),
                "stride": list(map(int, tensor.stride())) if tensor.layout is torch.strided else None,
                "layout": str(tensor.layout),
                "requires_grad": tensor.requires_grad and tensor.is_leaf,
                "parameter": kind is torch.nn.Parameter,
                "fake": is_fake,
            }
        except Exception:  # noqa: BLE001  # a tensor that does not say what it is cannot be written
            return {"unknown": kind.__name__}
        if has_values and not is_fake and tensor.device.type == "cpu" and tensor.numel() <= MOST_VALUES:
            shown["values"] = repr(tensor.detach().tolist())
        return shown


def _modes(torch: Any) -> list[str]:
    """Return which modes of torch are on that a script would have to switch on, too."""
    found = []
    if not torch.is_grad_enabled():
        found.append("no_grad")
    if torch.is_inference_mode_enabled():
        found.append("inference_mode")
    return found
