"""Write down the call of torch that is being made, so that it is known which one a script ended in.

WHICHTORCH_OPERATORS is a JSON object: "file" is rewritten before each call of a function or method of torch, with
all calls that are under way, the outermost first; what raised stays as it was when it raised.

A start-up hook: it runs in the environments under test, before a script. It needs torch.overrides, of torch 1.13 on.
"""
# ruff: noqa: PTH118, PTH120, PTH123

from __future__ import annotations

import json
import os
import runpy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

ASKED: dict[str, Any] = json.loads(os.environ.get("WHICHTORCH_OPERATORS", "{}"))


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
    """The calls under way, in a file that is rewritten for each."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        folder = os.path.dirname(os.path.dirname(__file__))
        self.described = runpy.run_path(os.path.join(folder, "described_values.py"))["described"]
        self.file = open(ASKED["file"], "w", encoding="utf-8")  # noqa: SIM115  # as long as the process
        self.owner = os.getpid()
        self.calls: list[dict[str, Any]] = []

    def begin(self, name: str, args: Any, kwargs: Any) -> None:
        if os.getpid() != self.owner:
            return
        torch = self.torch
        with torch._C.DisableTorchFunction():
            call = {
                "name": name,
                "args": [self.described(torch, value) for value in args],
                "kwargs": {key: self.described(torch, value) for key, value in kwargs.items()},
            }
        self.calls.append(call)
        self.file.seek(0)
        self.file.truncate()
        json.dump(self.calls[-8:], self.file)
        self.file.flush()

    def end(self) -> None:
        if os.getpid() == self.owner:
            self.calls.pop()
