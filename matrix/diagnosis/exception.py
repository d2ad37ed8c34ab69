"""Read the exception that ended a script from its stderr: what was raised, and where.

Releases and layers of torch word the same failure differently, so the words are left out:

    torch._dynamo.exc.BackendCompilerFailed: backend='aot_eager' raised:
    RuntimeError: Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices cpu, meta

is a RuntimeError, raised in `merge_devices` of torch, on behalf of the script's `add`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line \d+,? in (?P<function>.+)$')
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::|$)")
_RAISES = re.compile(r"^\s+raise (?:[\w.]+\.)?(?P<type>[A-Z]\w*)\(")
_PREFIX = re.compile(r"\s*(?:[\w.]+\.)?(?P<type>[A-Z]\w*(?:Error|Exception|Failed))(?::|$)")
_GOT = re.compile(r"\bgot (?P<type>[A-Z]\w*(?:Error|Exception))\((?P<quote>['\"])(?P<words>.*)(?P=quote)")

# raised by torch's compiler around what went wrong below it
_WRAPPERS = {
    "BackendCompilerFailed",
    "InductorError",
    "InternalTorchDynamoError",
    "LoweringException",
    "TorchRuntimeError",
}
# functions that raise, or call, for others: their names tell nothing
_HELPERS = re.compile(r"<lambda>|_fn|fn|inner|wrapper\w*|wrapped\w*|_wrap\w*|unimplemented\w*|raise_\w+|__call__")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracebackFrame:
    """One line of a traceback: a function of a file, without folder and line number, which move."""

    file: str
    function: str

    @property
    def name(self) -> str:
        """As a signature shows it: `merge_devices (fake_tensor.py)`."""
        return f"{self.function} ({PurePath(self.file).name})"

    @property
    def is_helper(self) -> bool:
        """True for what only raises or calls on behalf of others."""
        return _HELPERS.fullmatch(self.function) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The exception that ended a script."""

    type: str  # of the cause, where the traceback shows what a compiler's exception was raised for
    frames: tuple[TracebackFrame, ...]  # innermost first
    words: str = ""  # the first line of the cause's message: releases wrap it more often than they reword it

    @property
    def place(self) -> tuple[str, ...]:
        """The innermost frame that means something, and the innermost one of the script that led there."""
        telling = [frame for frame in self.frames if not frame.is_helper] or list(self.frames)
        if not telling:
            return ()
        script = self.frames[-1].file  # the outermost frame is the script's own
        inner, rest = telling[0], telling[1:]
        if inner.file != script:
            rest = [frame for frame in self.frames if frame.file == script]
        return tuple(frame.name for frame in (inner, *rest[:1]))


def read_frame(line: str) -> TracebackFrame | None:
    """Return the frame that a line of a traceback, or of faulthandler's, names."""
    match = _FRAME.match(line)
    return TracebackFrame(file=match["file"], function=match["function"]) if match else None


def read_exception(stderr: str) -> Raised | None:
    """Return the exception of the last traceback, if any; a chained cause comes before that one and does not count."""
    lines = stderr.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if not starts:
        return None
    frames: list[TracebackFrame] = []
    raises: str | None = None  # the type that the innermost frame's source line raises
    for number in range(starts[-1] + 1, len(lines)):
        line = lines[number]
        if frame := read_frame(line):
            frames.append(frame)
            raises = None
        elif not line.startswith(" ") and (exception := _EXCEPTION.match(line)):
            wrapper = exception["type"].rpartition(".")[2]
            message = [line[exception.end() :].strip(), *lines[number + 1 :]]
            cause, words = _cause(wrapper, message, raises)
            return Raised(type=cause or wrapper, frames=tuple(reversed(frames)), words=words)
        elif raised := _RAISES.match(line):
            raises = raised["type"]
    return None


def _cause(wrapper: str, message: Sequence[str], raises: str | None) -> tuple[str | None, str]:
    """Return type and message of what a compiler's exception was raised for; None for a type that nothing shows."""
    if wrapper not in _WRAPPERS:
        return None, message[0]
    # "backend='inductor' raised:" and "Failed running call_method …:" stand alone on a line, the cause on the next
    stands_alone = len(message) > 1 and message[1].strip() and message[0].endswith(":")
    text = message[1].strip() if stands_alone else message[0]
    shown = None
    while prefix := _PREFIX.match(text):
        shown, text = prefix["type"], text[prefix.end() :].strip()
        if shown not in _WRAPPERS:
            return shown, text
    for line in message:
        if not line.strip():
            break
        if got := _GOT.search(line):
            return got["type"], got["words"]
    return (raises if raises and raises != "Unsupported" else shown), text
