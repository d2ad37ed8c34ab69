"""Judge an attempt: how it ended and what it wrote to stderr -> outcome and signature.

A signature is taken from the exception and its frames, never from the last line of output, which is often only a
warning. Releases and layers of torch word the same failure differently, so the words are left out where a frame of a
library tells what failed:

    torch._dynamo.exc.BackendCompilerFailed: backend='aot_eager' raised:
    RuntimeError: Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices cpu, meta

is a RuntimeError, raised in `merge_devices` of torch, on behalf of the script's `add`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.matrix.diagnosis.code_owner import FORK_SERVER, frame_name, generator_of, is_rest_of, is_users
from whichtorch.matrix.diagnosis.deadline import PLAIN_LOOK, Decider, StoppedLook, hang_signature, timeout_outcome
from whichtorch.matrix.diagnosis.sameness import Signature, says
from whichtorch.matrix.diagnosis.source_lines import statement_line
from whichtorch.matrix.model import Outcome, StoppedBy
from whichtorch.matrix.process.evidence.loop_watch import LOOP_SIGNAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.process.supervision import Ending

NOT_APPLICABLE = 125  # the exit code `git bisect run` gave this meaning
KERNEL_OOM_SHARE = 0.5  # of the memory limit: a SIGKILL from outside above it was the kernel's OOM killer
ENDLESS = 30  # times that a frame recurs in a recursion without end; faulthandler shows 100 frames of it
MESSAGE_LENGTH = 500  # characters: longer ones hold data

_STILL = {  # what a longer look has seen go on
    Decider.COMPILE: "compiling",
    Decider.ASLEEP: "asleep",
    Decider.MOVING: "moving",
    Decider.HEADWAY: "moving",
}
_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<function>.+)$')
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?::|$)")
_REPEATED = re.compile(r"\s*\[Previous line repeated (\d+) more times?\]")
_RAISES = re.compile(r"^\s+raise (?:[\w.]+\.)?(?P<type>[A-Z]\w*)\(")
_PREFIX = re.compile(r"\s*(?:[\w.]+\.)?(?P<type>[A-Z]\w*(?:Error|Exception|Failed))(?::|$)")
_GOT = re.compile(r"\bgot (?P<type>[A-Z]\w*(?:Error|Exception))\((?P<quote>['\"])(?P<words>.*)(?P=quote)")

# raised by torch's compiler around what went wrong below it
_WRAPPERS = frozenset(
    ["BackendCompilerFailed", "InductorError", "InternalTorchDynamoError", "LoweringException", "TorchRuntimeError"]
)
# functions that raise, or call, for others: their names tell nothing
_HELPERS = re.compile(r"<lambda>|_fn|fn|inner|wrapper\w*|wrapped\w*|_wrap\w*|unimplemented\w*|raise_\w+|__call__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an attempt came to."""

    outcome: Outcome
    signature: str | None = None
    note: str = ""
    message: str = ""  # of the exception of a `fail`
    decided: str = ""  # a Decider, of a hang or what is slow


def judge(ending: Ending, stderr: str, memory_mb: int, look: StoppedLook = PLAIN_LOOK) -> Verdict:
    """Return the verdict on one attempt from how it ended and the end of what it wrote to stderr.

    Of what was stopped, the stacks' facts count, too. The longer look at what was slow decides: what it finds still
    moving counts as a hang.
    """
    outcome, note, decider = _outcome(ending, memory_mb, look)
    if look.is_longer and decider not in {None, Decider.STALL, Decider.REPEATS, Decider.PROGRESS}:
        assert decider is not None
        outcome, note, decider = _longer_outcome(ending, look, outcome, note, decider)
    note = "; ".join(part for part in (note, ending.note) if part)
    raised = read_exception(stderr) if outcome is Outcome.FAIL else None
    signature = raised.signature if raised else _signature(outcome, ending, stderr, look.place)
    message = raised.words[:MESSAGE_LENGTH] if raised else ""
    return Verdict(
        outcome=outcome,
        signature=str(signature) if signature else None,
        note=note,
        message=message,
        decided=decider or "",
    )


def _outcome(ending: Ending, memory_mb: int, look: StoppedLook) -> tuple[Outcome, str, Decider | None]:
    if ending.problem:
        return Outcome.ERROR, ending.problem, None
    reason = StoppedBy(ending.stopped_by)
    if reason is StoppedBy.EXIT:
        return *_exit_outcome(ending, memory_mb), None
    if reason is StoppedBy.TIMEOUT:
        return timeout_outcome(ending, look)
    if reason is StoppedBy.STALL:
        loop = ending.evidence.loop
        return Outcome.HANG, "", Decider.REPEATS if loop and loop.repeats else Decider.STALL
    outcome, note = {
        StoppedBy.MEMORY: (Outcome.OOM, f"passed its {memory_mb} MB"),
        StoppedBy.PROCESSES: (Outcome.OOM, "started more processes than it may"),
        StoppedBy.OUTPUT: (Outcome.ERROR, "wrote more than the disk can be asked to hold"),
        StoppedBy.INTERRUPT: (Outcome.ERROR, "interrupted"),
    }[reason]
    return outcome, note, None


def _longer_outcome(
    ending: Ending, look: StoppedLook, outcome: Outcome, note: str, decider: Decider
) -> tuple[Outcome, str, Decider]:
    """Return what a longer look comes to: a hang, unless it gave less than it was to give."""
    if outcome is Outcome.SLOW:
        note = f"still {_STILL.get(decider, 'busy')} after {ending.seconds:.0f} s"
    if decider is Decider.IDLE or look.is_enough(ending):
        return Outcome.HANG, note, Decider.LONGER_LOOK
    if decider is Decider.ASLEEP:
        return Outcome.SLOW, note, decider
    return Outcome.SLOW, f"{note}, most of which it waited for a core", Decider.CROWDED


def _exit_outcome(ending: Ending, memory_mb: int) -> tuple[Outcome, str]:
    if ending.signal == "SIGKILL" and ending.peak_rss_mb >= KERNEL_OOM_SHARE * memory_mb:
        return Outcome.OOM, f"killed from outside at {ending.peak_rss_mb:.0f} MB: the kernel was out of memory"
    if ending.signal == f"SIG{LOOP_SIGNAL}":
        return Outcome.ERROR, "ended by the signal that asks for its loop, while it ended or began another program"
    if ending.signal is not None:
        return Outcome.CRASH, ""
    if ending.exit_code is None:
        return Outcome.ERROR, "its exit status was lost"
    return {0: Outcome.PASS, NOT_APPLICABLE: Outcome.SKIP}.get(ending.exit_code, Outcome.FAIL), ""


def _signature(outcome: Outcome, ending: Ending, stderr: str, place: str) -> Signature | None:
    if outcome is Outcome.FAIL:
        return Signature(f"exit code {ending.exit_code}")
    if outcome is Outcome.CRASH:
        return Signature(ending.signal or "signal", _crash_frames(stderr))
    if outcome is Outcome.OOM:
        return Signature(ending.stopped_by if ending.stopped_by != StoppedBy.EXIT else "SIGKILL")
    return hang_signature(ending, place) if outcome is Outcome.HANG else None


def _crash_frames(stderr: str) -> tuple[str, ...]:
    """Return the place that faulthandler wrote: of the current thread, or of the main one where that has no frames."""
    _, header, report = stderr.rpartition("Current thread ")
    blocks = [block.splitlines()[1:] for block in re.split(r"^(?=Thread 0x)", report, flags=re.MULTILINE)]
    stacks = [tuple(filter(None, takewhile(bool, map(_read_frame, block)))) for block in blocks] if header else []
    return place_of(next(filter(None, (*stacks[:1], *stacks[::-1])), ()))


class TracebackFrame(NamedTuple):
    """One line of a traceback: where a function of a file was."""

    file: str
    function: str
    line: int = 0
    source: str = ""  # as the traceback shows it

    @property
    def is_users(self) -> bool:
        """True for code that the user wrote."""
        return is_users(self.file) and not generator_of(self.file, self.function)


def place_of(frames: Sequence[TracebackFrame]) -> tuple[str, ...]:
    """Return the innermost frame that means something, and the user's own line that led there.

    Where that frame is the user's own, or generated code, the user's two innermost lines are returned: no function of
    a library tells two failures apart. Of a recursion without end it is a line that recurs: where the stack was full
    is chance.
    """
    recurring = [frame for frame, count in Counter(frames).items() if count >= ENDLESS and frame.is_users]
    if recurring:
        frames = [min(recurring)]
    # the fork server's frames lie below the script's and do not count
    frames = [frame for frame in frames if not frame.file.endswith(FORK_SERVER)]
    written = [frame for frame in frames if not generator_of(frame.file, frame.function)]
    users = [frame for frame in written if frame.is_users] or written[-1:]
    parts = zip([None, *users], users, strict=False)  # a function that Dynamo has split is told by its innermost part
    users = [frame for inner, frame in parts if inner is None or not is_rest_of(inner.function, frame.function)]
    telling = [frame for frame in frames if not _HELPERS.fullmatch(frame.function)] or frames
    is_inner = bool(telling) and telling[0] not in users
    names = [frame_name(telling[0].file, telling[0].function)] if is_inner else []
    is_of_library = is_inner and not generator_of(telling[0].file, telling[0].function)
    lines = [(frame, statement_line(frame.file, frame.line)) for frame in users[: 1 if is_of_library else 2]]
    return (*names, *(frame_name(frame.file, frame.function, line) for frame, line in lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The exception that ended a script."""

    type: str  # of the cause, where the traceback shows what a compiler's exception was raised for
    frames: tuple[TracebackFrame, ...]  # innermost first
    words: str = ""  # the first line of the cause's message: releases wrap it more often than they reword it

    @property
    def signature(self) -> Signature:
        """Its type and place, and what it says where no frame of a library tells."""
        inner = self.frames[0] if self.frames else None
        source = inner.source if inner else ""
        is_told = inner is not None and not inner.is_users and source.startswith(("raise ", "assert "))
        is_told |= self.type == RecursionError.__name__  # the words tell what was called last, by chance
        return Signature(self.type, place_of(self.frames), "" if is_told else says(self.words or source))


def _read_frame(line: str, source: str = "") -> TracebackFrame | None:
    match = _FRAME.match(line)
    source = "" if _FRAME.match(source) or not source.startswith("    ") else source.strip()
    return TracebackFrame(match["file"], match["function"], int(match["line"]), source) if match else None


def read_exception(stderr: str) -> Raised | None:
    """Return the exception of the last traceback, if any; a chained cause comes before that one and does not count."""
    lines = stderr.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    lines = lines[starts[-1] + 1 :] if starts else []
    frames: list[TracebackFrame] = []
    raises: str | None = None  # the type that the innermost frame's source line raises
    for number, line in enumerate(lines):
        if frame := _read_frame(line, lines[number + 1] if number + 1 < len(lines) else ""):
            frames.append(frame)
            raises = None
        elif frames and (repeated := _REPEATED.match(line)):
            frames.extend(frames[-1:] * int(repeated[1]))
        elif not line.startswith(" ") and (exception := _EXCEPTION.match(line)):
            wrapper = exception["type"].rpartition(".")[2]
            message = [line[exception.end() :].strip(), *lines[number + 1 :]]
            if line.endswith(":"):  # the message begins on a line of its own
                message = [text.strip() for text in message if text.strip()] or [""]
            cause, words = _cause(wrapper, message, raises)
            if inner := _reported(message):  # what a worker raised: its frames come first
                return replace(inner, frames=(*inner.frames, *reversed(frames)))
            return Raised(type=cause or wrapper, frames=tuple(reversed(frames)), words=words)
        elif raised := _RAISES.match(line):
            raises = raised["type"]
    return None


def _reported(message: Sequence[str]) -> Raised | None:
    """Return the exception of a worker, or of TorchScript's interpreter, that a message quotes."""
    quoted = next((number for number, line in enumerate(message) if line.startswith("Original Traceback")), None)
    if quoted is not None:
        return read_exception("\n".join(["Traceback (most recent call last)", *message[quoted + 1 :]]))
    if "TorchScript interpreter" in message[0]:
        last = next((match for line in reversed(message) if (match := _PREFIX.match(line))), None)
        return Raised(type=last["type"], frames=(), words=last.string[last.end() :].strip()) if last else None
    return None


def _cause(wrapper: str, message: Sequence[str], raises: str | None) -> tuple[str | None, str]:
    """Return type and message of what a compiler's exception was raised for; None for a type that nothing shows."""
    if wrapper not in _WRAPPERS:
        return None, message[0]
    # The cause is on the line after "backend='inductor' raised:", or after "Failed running call_method …:", whose
    # arguments may take several lines.
    block = list(takewhile(str.strip, message))
    is_call = bool(block) and block[0].startswith("Failed running ")
    end = next((number for number, line in enumerate(block) if line.endswith(":") and (is_call or not number)), None)
    text = block[end + 1].strip() if end is not None and end + 1 < len(block) else message[0]
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


def passes_needed(seen: int, made: int, luck: float) -> int:
    """Return how many passes in a row are luck with at most this chance, of what failed in `seen` of `made` runs."""
    return math.ceil(math.log(luck) / math.log(1 - seen / made))
