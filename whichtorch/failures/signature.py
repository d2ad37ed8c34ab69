"""Signatures: what stays the same of a failure from run to run, as records hold it in a line of text.

A signature is the head of a failure (its exception type, its signal, "stuck", ...) and the frames where it happened:

    RuntimeError in merge_devices (fake_tensor.py) < add (repro.py:33)

It is taken from the exception and its frames, never from the last line of output, which is often only a warning.
Releases and layers of torch word the same failure differently, so the words are left out where a frame of a library
tells what failed:

    torch._dynamo.exc.BackendCompilerFailed: backend='aot_eager' raised:
    RuntimeError: Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices cpu, meta

is a RuntimeError, raised in `merge_devices` of torch, on behalf of the script's `add`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.source.code_owner import FORK_SERVER, frame_name, is_rest_of, normalized
from whichtorch.source.source_lines import statement_line

if TYPE_CHECKING:
    from whichtorch.failures.tracebacks import CodeFrame, RaisedException

STUCK = "stuck"  # head of the signature of a hang whose stacks were read
ENDLESS = 30  # times that a frame recurs in a recursion without end; faulthandler shows 100 frames of it
MESSAGE_KEPT = 80  # characters of a message that a signature holds

_WRITTEN = re.compile(r'([^" ]*(?: (?!in |")[^" ]*)*)(?: "([^"]*)")?(?: in (.*))?', re.DOTALL)  # as `__str__` does it
_LINE = re.compile(r":\d+(?=\)$|$)")  # of a frame
_LINES = re.compile(r":\d+(?=\)| < |$)")  # of all frames of a signature
_COUNT = re.compile(r"\b\d+ x ")
_GLUE = re.compile(r"at::wrapper_\w+|c10::impl::\w+(?:::\w+)*|c10::Dispatcher::\w+")  # frames named anew by releases
_LAMBDA = re.compile(r"::\{lambda.*$")
# functions that raise, or call, for others: their names tell nothing
_HELPERS = re.compile(r"<lambda>|_fn|fn|inner|wrapper\w*|wrapped\w*|_wrap\w*|unimplemented\w*|raise_\w+|__call__")


class Signature(NamedTuple):
    """What makes two failures the same one."""

    head: str  # "RuntimeError", "SIGSEGV", "stuck", "stuck: wait for a queue", "exit code 3", "idle", ...
    frames: tuple[str, ...] = ()  # innermost first; each of the user's has its line
    message: str = ""  # of an exception, normalized, where no frame of a library tells what failed

    @classmethod
    def parse(cls, text: str | None) -> Signature:
        """Return the signature that a record holds as text; an empty one for none."""
        match = _WRITTEN.fullmatch(text or "")
        if match is None:  # of a record that somebody else wrote
            return cls(text or "")
        head, message, frames = match.groups(default="")
        return cls(head, tuple(frames.split(" < ")) if frames else (), message)

    @classmethod
    def of(cls, exception: RaisedException) -> Signature:
        """Return its type and place, and what it says where no frame of a library tells."""
        source = exception.frames[0].source if exception.frames else ""
        is_told = bool(exception.frames) and exception.frames[0].raises and not exception.frames[0].is_users
        is_told |= exception.name == RecursionError.__name__  # the words tell what was called last, by chance
        return cls(exception.name, place_of(exception.frames), "" if is_told else kept(exception.first_line or source))

    def __str__(self) -> str:
        """Return the text that a record holds."""
        head = f'{self.head} "{self.message}"' if self.message else self.head
        return f"{head} in {' < '.join(self.frames)}" if self.frames else head

    @property
    def comparable(self) -> Signature:
        """The signature without the number of waiting threads, which differs from machine to machine."""
        kind, colon, waits = self.head.partition(": ")
        waits = ", ".join(sorted(set(_COUNT.sub("", waits).split(", "))))
        return self._replace(head=kind + colon + waits)

    @property
    def library_frame(self) -> str:
        """The frame above the user's own, "merge_devices (x.py)" of "merge_devices (x.py) < f (a.py:3)", or ""."""
        return "" if self.is_raised_in_script or _LINE.search(self.frames[0]) else self.frames[0]

    @property
    def is_raised_in_script(self) -> bool:
        """True where the outer frame, which is the script's, is the only one or in the same file as the inner one."""
        return len(self.frames) < 2 or _file(self.frames[0]) == _file(self.frames[-1])

    def is_at_lines_of(self, other: Signature) -> bool:
        """Return whether the user's lines of one signature are all among those of the other: a release may hide some.

        If either has no lines (an older record, or an edited script), the outermost functions decide.
        """
        lines = [set(filter(_LINE.search, signature.frames)) for signature in (self, other)]
        if all(lines):
            return lines[0] <= lines[1] or lines[1] <= lines[0]
        ends = [_LINE.sub("", signature.frames[-1]) if signature.frames else "" for signature in (self, other)]
        return bool(ends[0]) and ends[0] == ends[1]

    @property
    def stuck_frames(self) -> list[str]:
        """The frames of a stuck thread, without those that releases name anew.

        These are the glue between the dispatcher and its kernels (`at::wrapper_mul_Tensor` of 1.13 is
        `at::wrapper_CPU_mul_Tensor` from 2.0 on), and lambdas of kernels, which 2.3 has and 2.2 has not.
        """
        names = [name for frame in self.frames if not _GLUE.fullmatch(name := _LAMBDA.sub("", frame))]
        return [name for name, before in zip(names, [None, *names], strict=False) if name != before]


def place_of(frames: Sequence[CodeFrame]) -> tuple[str, ...]:
    """Return the innermost frame that means something, and the user's own line that led there.

    Where that frame is the user's own, or generated code, the user's two innermost lines are returned: no function of
    a library tells two failures apart. So they are where the first of them was only being compiled: a release may not
    tell that line. Of a recursion without end it is a line that recurs: where the stack was full is chance.
    """
    recurring = [frame for frame, count in Counter(frames).items() if count >= ENDLESS and frame.is_users]
    # the fork server's frames lie below the script's and do not count
    frames = [min(recurring)] if recurring else [frame for frame in frames if not frame.file.endswith(FORK_SERVER)]
    written = [frame for frame in frames if not frame.generator]
    users = [frame for frame in written if frame.is_users] or written[-1:]
    parts = zip([None, *users], users, strict=False)  # a function that Dynamo has split is told by its innermost part
    users = [frame for inner, frame in parts if inner is None or not is_rest_of(inner.function, frame.function)]
    telling = next((frame for frame in frames if not _HELPERS.fullmatch(frame.function)), next(iter(frames), None))
    inner = [telling] if telling is not None and telling not in users else []
    is_of_library = bool(inner) and not inner[0].generator
    is_enough = is_of_library and not any(frame.is_traced for frame in users[:1])
    lines = [(frame, statement_line(frame.file, frame.line)) for frame in users[: 1 if is_enough else 2]]
    return (*(frame.name for frame in inner), *(frame_name(frame.file, frame.function, line) for frame, line in lines))


def kept(message: str) -> str:
    """Return what a signature holds of a message: its beginning, without what differs from run to run."""
    return normalized(message).replace('"', "'")[:MESSAGE_KEPT].rstrip()


def described(signature: str | None, message: str) -> str:
    """Return signature and message for people, without saying the message twice: "ValueError: no x, in f (a.py:3)"."""
    shown = Signature.parse(signature)
    if not message:
        return str(shown)
    place = f"in {' < '.join(shown.frames)}" if shown.frames else ""
    return ", ".join(filter(None, (": ".join(filter(None, (shown.head, message))), place)))


def gist(signature: str | None) -> str:
    """Return what a signature says beside the script's own lines, which differ from test to test."""
    shown = Signature.parse(signature)
    return str(shown._replace(frames=(shown.library_frame,) if shown.frames and shown.library_frame else ()))


def without_lines(signature: str | None) -> str:
    """Return a signature of a script that was edited, whose lines tell nothing."""
    return _LINES.sub("", signature or "")


def _file(frame: str) -> str:
    return _LINE.sub("", frame).rpartition(" (")[2]
