"""What Python wrote of exceptions and crashes -> exceptions, their causes and their frames.

    Traceback (most recent call last):
      File ".../torch/_inductor/codegen/cpp.py", line 4, in lower
    ZeroDivisionError: integer division or modulo by zero

    The above exception was the direct cause of the following exception:

    Traceback (most recent call last):
      File "repro.py", line 9, in <module>
    torch._inductor.exc.InductorError: ZeroDivisionError: integer division or modulo by zero

is a chain of two exceptions. A script that Python cannot read has no traceback: its SyntaxError follows the file and
the line. What a worker process reports of its own ("Original Traceback") is quoted in the message
of the exception that passes it on, and is a cause of that one, too. Dynamo, which reads the user's code instead of
running it, tells in the message which line of that it was at ("from user code:"), and so does fx.

    [rank1]: Traceback (most recent call last):
    [rank1]:   File "train.py", line 3, in <module>
    [rank1]: KeyError: 'weights'
    Traceback (most recent call last):
      File ".../bin/torchrun", line 10, in <module>
    torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ...

is a KeyError of rank 1. What torchrun, a pool, a DataLoader, `subprocess.run` or make say is the frame around it: which
process that was, and its exit code or signal. Of a process that ended without a word these are all that is known.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.source.code_owner import Component, component_of, frame_name, generator_of, is_users

if TYPE_CHECKING:
    from collections.abc import Sequence


HEADER = "Traceback (most recent call last)"
LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_FATAL = "Fatal Python error: "
_DEATHS = {signal.strsignal(each): each for each in signal.Signals} | {each.name: each for each in signal.Signals}
_DEATH = rf"(?P<death>{'|'.join(filter(None, _DEATHS))})"  # "Segmentation fault", "SIGSEGV"
# before each line of a process: of a rank, or within a group of exceptions
_MARGIN = re.compile(r"^(?:(?:\[(?:rank|default|trainer|worker)(\d+)\]: ?)+|  [+|] (?:Exception Group )?)")
# how Python says that it cannot read a file, without a header
_UNREADABLE_FRAME = re.compile(r'^  File "[^"]+", line \d+$')
_UNREADABLE = re.compile(r"^(?:Syntax|Indentation|Tab)Error: ")
_UNDECODED = re.compile(r"^(SyntaxError: .*) in file (.+) on line (\d+)(, but no encoding.*)$", re.MULTILINE)
_NAMED = re.compile(r"^(?:Process ([\w-]+):|-- Process (\d+) terminated with the following error:)$")  # above a header
_WHO = re.compile(r"\b((?:DataLoader worker )?process \d+)(?=\.$| terminated with )", re.MULTILINE)
# the first frame of an exception that nobody has caught: of a script, a module, or a child of multiprocessing
_OUTERMOST = re.compile(r':\n  File "([^"]+)", line \d+, in (?:<module>|_bootstrap|_run_module_as_main)$', re.MULTILINE)
# an exception that only says that another process has failed, by its type or by the code that the raising line reads
_PASSES_ON = re.compile(
    r":(?:\n(?: .*)?)*?\n(?:    .*\b(?:exit|return)code\b.*\n(?:[ ~^]+\n)?\S|(?:[\w.]+\.)?(?:(?:ChildFailed"
    r"|CalledProcess|TerminatedWorker)Error|ProcessExitedException|BrokenProcessPool"
    r"|RuntimeError: DataLoader worker \(pid))"
)
# how another process ended, as such an exception says it
_ENDED = re.compile(rf"(?:non-zero exit status|exit code) (?P<code>\d+)|(?:<Signals\.|signal:? |are \{{){_DEATH}\b")
_SHELL = re.compile(  # the same, as make or a shell says it
    r"(?m)^(?:.*: \*\*\* \[.*\] Error (?P<code>\d+)|(?:.*: \*\*\* \[.*\] |\S+: (?:line \d+: +)?\d+ +)?"
    rf"{_DEATH}(?: \(core dumped\))?(?:  .*)?)$"
)
_ENTRY = re.compile(r"^  rank +: (\d+) .*\n  exitcode +: (-?\d+) ", re.MULTILINE)  # of torchrun; the last is the first
_ERROR_FILE = re.compile(rf"^  traceback : ({re.escape(HEADER)}.*\n(?:  .*\n)*)", re.MULTILINE)
# an exception that another process wrote between the lines of one, and the rest of that
_NESTED = re.compile(rf"(.*?\n(?!{HEADER[:9]})\S[^\n]*)(\n  .*)", re.DOTALL)
# what a process says if one that it talks to has gone
_PEER_LOST = re.compile(
    r":(?:\n(?: .*)?)*\n\S.*(?:(?:closed|reset) by peer|Broken pipe|remote process exited|likely closed|[Tt]imed? ?out"
    r"|Connection refused|ommunicator was aborted|failed to (?:connect|recv)|(?:recv|send)\w+ failed)"
)


class FirstFailure(NamedTuple):
    """The process that failed first, and what it wrote then."""

    text: str = ""  # "" where it said nothing
    process: str = ""  # "rank 1"; "" where it is the program itself, or not known
    exit_code: int | None = None  # where that is all that is known
    signal: str = ""  # that ended it, "SIGSEGV"
    around: str = ""  # what those who started it wrote then


class _Words(NamedTuple):
    """What a process wrote of a failure: a chain of tracebacks, a script that it cannot read, or a fatal error."""

    line: int  # where they begin
    text: str
    process: str

    @property
    def last_block(self) -> str:
        return f"\n{self.text}".rpartition(f"\n{HEADER}")[2]

    @property
    def signal(self) -> str:
        """The signal of a fatal error; "" of an exception."""
        _, fatal, words = self.text.partition("\n")[0].partition(_FATAL)
        return _DEATHS.get(words, signal.SIGABRT).name if fatal else ""

    def is_of_other(self, around: str) -> bool:
        """Return whether they are of another process than what stands around them, and ended that."""
        frame = _OUTERMOST.match(self.last_block)
        is_own = frame and f'File "{frame[1]}"' in around and f"{PurePath(frame[1]).name}'" not in around
        return bool(not around or self.process or not self.text.startswith(HEADER) or (frame and not is_own))


def first_failure(stderr: str) -> FirstFailure:
    """Return which process failed first, of a program that failed."""
    stderr = _UNDECODED.sub(r'  File "\2", line \3\n\1\4', stderr)
    lines = stderr.replace("\0", "").splitlines()  # torch's handler of a worker's signals ends its words with one
    found = _words(lines)
    while found and _PEER_LOST.match(found[-1].last_block) and any(_PASSES_ON.match(each.last_block) for each in found):
        found.pop()  # lost a process that had failed by then
    count = next((at for at in range(len(found), 0, -1) if not _PASSES_ON.match(found[at - 1].last_block)), 0)
    own = found[:count]
    start, end = own[-1].line if own else 0, found[count].line if count < len(found) else len(lines)
    before, around = "\n".join(lines[start:end]), "\n".join([*lines[end:], ""])
    entries = [(f"rank {rank}", int(code)) for rank, code in reversed(_ENTRY.findall(around))]
    named = [each for each in own if each.process or each.signal]
    is_named = any(each.process for each in (own if entries else own[-1:]))
    own = named if is_named else [each for each in own[-max(1, len(entries)) :] if each.is_of_other(around)]
    # torchrun ends the others by SIGTERM, and lists them
    ends = [*entries[:1], *(entry for entry in entries[1:] if entry[1] != -signal.SIGTERM)]
    told = _SHELL.search(before) or _ENDED.search(around)
    # what a process itself wrote says more than the exit code that make tells
    if told and not entries and not (own and told.re is _SHELL and told["code"]):
        ends = [(_who(around), -_DEATHS[told["death"]] if told["death"] else int(told["code"]))]
    first = next((each for each in own if not _PEER_LOST.match(each.last_block)), None)
    silent = [end for end in ends if end[1] not in {0, 1}] or ([] if own else entries[:1])
    if silent and (first is None or (silent[0] == ends[0] and not first.signal)):
        (process, code), quoted = silent[0], _ERROR_FILE.search(around.rpartition("Root Cause")[2])
        text = quoted[1].replace("\n  ", "\n") if quoted else ""
        is_elsewhere = entries or "DataLoader worker (pid" in around  # whose handler raises wherever its parent is then
        said = "" if is_elsewhere else around or before
        return FirstFailure(text, process, max(code, 0) or None, signal.Signals(-code).name if code < 0 else "", said)
    first = first or next(iter(own), _Words(0, stderr, ""))
    alike = [process for process, code in ends if (code < 0) == bool(first.signal)]
    process = first.process or _who(first.text) or (alike[0] if len(alike) == 1 else "")
    return FirstFailure(first.text, process, signal=first.signal)


def _who(text: str) -> str:
    """Return the name of a process that a message tells, "process 1"; "" where it tells none."""
    return next(iter(_WHO.findall(text)), "")


def _words(stderr: list[str]) -> list[_Words]:
    """Return what was written of each failure, in order; the lines of a rank that has a prefix are its own."""
    streams: dict[str | None, list[tuple[int, str]]] = {}
    found: list[_Words] = []
    for number, line in enumerate(stderr):
        margin = _MARGIN.match(line)
        streams.setdefault(margin and margin[1], []).append((number, line[margin.end() :] if margin else line))
    for rank, numbered in streams.items():
        lines = [line for _, line in numbered]
        starts = [at for at in range(len(lines)) if _begins(lines, at)]
        for start, end in pairwise([*starts, len(lines)]):
            named = _NAMED.match(lines[start - 1]) if start else None
            name = f"rank {rank}" if rank else named[1] or f"process {named[2]}" if named else ""
            text = "\n".join(lines[start:end])
            is_open = start != starts[0] and not re.search(r"\n\S", found[-1].last_block)
            if is_open and (nested := _NESTED.match(text)):
                text, found[-1] = nested[1], found[-1]._replace(text=found[-1].text + nested[2])
            found.append(_Words(numbered[start][0], text, name))
    return sorted(found)


def _begins(lines: list[str], at: int) -> bool:
    """Return whether what is written of a failure begins at a line."""
    if lines[at].startswith(HEADER):
        return not is_linked(lines, at)
    is_frame = _UNREADABLE_FRAME.match(lines[at]) and not (at and lines[at - 1].startswith("  "))
    return lines[at].startswith(_FATAL) or bool(is_frame and any(map(_UNREADABLE.match, lines[at + 1 : at + 5])))


def is_linked(lines: list[str], at: int) -> bool:
    """Return whether the traceback at a line follows the one that caused it."""
    return any(line.strip() in LINKS for line in lines[max(0, at - 3) : at])


# a file that Python cannot read is named without a function
_FRAME = re.compile(r'^[ |+]*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+))?$')
_REPEATED = re.compile(r"\s*\[Previous line repeated (\d+) more times?\]")
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*(?:<locals>\.[\w.]+)*(?:\(\w+\))?)(?:: ?(?P<message>.*))?$")
_USER_CODE = re.compile(r"\n(?:from user code|Original traceback):\n")  # of Dynamo, or of an operator of fx
_INDENT = "    "  # of a source line
# a warning or a note of a logger's, with the line of source that follows it
_WARNING = re.compile(
    r"^(?:\S+:\d+: \w*Warning: .*(?:\n  .*)?|(?:\[rank\d+\]:)?\[?[WI]\d{4} .*|(?:\S+ )?(?:WARNING|INFO)\b.*)$",
    re.MULTILINE,
)
_RAISES = re.compile(r"raise (?:[\w.]+\.)?(?P<type>[A-Z]\w*)\(")
_PREFIX = re.compile(r"\s*(?:[\w.]+\.)?(?P<type>[A-Z]\w*(?:Error|Exception|Failed))(?::|$)")
_GOT = re.compile(r"\bgot (?P<type>[A-Z]\w*(?:Error|Exception))\((?P<quote>['\"])(?P<words>.*)(?P=quote)")
# raised by torch's compiler around what went wrong below it
_WRAPPERS = frozenset(
    ["BackendCompilerFailed", "InductorError", "InternalTorchDynamoError", "LoweringException", "TorchRuntimeError"]
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CodeFrame:
    """A line of Python code that was being run."""

    file: str
    function: str
    line: int = 0
    source: str = ""  # as the traceback shows it, "" where it does not
    is_traced: bool = False  # what was compiled comes from this line, which was not run

    @property
    def path(self) -> str:
        """The file, from site-packages on where a package is installed there."""
        return self.file.rpartition("/site-packages/")[2]

    @property
    def name(self) -> str:
        """What a signature calls it, without its line."""
        return frame_name(self.file, self.function)

    @property
    def generator(self) -> str:
        """What generated its code, "" for code that somebody wrote."""
        return generator_of(self.file, self.function)

    @property
    def is_users(self) -> bool:
        """True for code that the user wrote."""
        return is_users(self.file) and not self.generator

    @property
    def component(self) -> Component:
        """Whose code it is."""
        return component_of(self.file)

    @property
    def raises(self) -> bool:
        """True where its source line raises, rather than calls what does."""
        return self.source.startswith(("raise ", "raise(", "assert ", "assert("))


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedException:
    """An exception that a traceback shows."""

    type: str  # dotted, as it was written: "torch._dynamo.exc.Unsupported"
    message: str  # all its lines
    frames: tuple[CodeFrame, ...]  # innermost first

    @property
    def name(self) -> str:
        """The type without its module."""
        return self.type.rpartition(".")[2]

    @property
    def first_line(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0].strip()


def read_chain(stderr: str) -> tuple[RaisedException, ...]:
    """Return the exception that ended what failed first, and what caused it, the effect first; empty for none.

    What a worker's pool raises anew is one exception with what was raised in the worker.
    """
    lines = first_failure(stderr).text.splitlines()
    headers = [at for at, line in enumerate(lines) if line.startswith(HEADER)]
    headers = headers or [-1 for line in lines[:1] if _FRAME.match(line)]  # of a script that Python cannot read
    read: list[RaisedException] = []
    for start, end in pairwise([*headers, len(lines)]):
        if exception := _read_block(lines[start + 1 : end]):
            is_sent = (
                read and '"""' in lines[max(0, start - 4) : start]
            )  # by a worker of a pool: these end its traceback
            remote = read.pop().frames if is_sent else ()
            read.append(replace(exception, frames=(*remote, *exception.frames)))
    return tuple(each for exception in reversed(read) for each in (exception, _quoted(exception)) if each)


def read_exception(stderr: str) -> RaisedException | None:
    """Return the exception that ended a script, or None; a chained cause does not count.

    Its type and message are those of what was raised first where the message tells, since a compiler of torch, a
    worker and TorchScript's interpreter raise their own exception around that one. Releases wrap it in other words
    more often than they reword it.
    """
    chain = read_chain(stderr)
    return _unwrapped(chain[0]) if chain else None


def read_frames(stderr: str) -> tuple[CodeFrame, ...]:
    """Return the frames of all tracebacks, each once, innermost first; a cause comes before its effect."""
    found: dict[CodeFrame, None] = {}
    for block in stderr.split(HEADER):
        frames = [frame for line in block.splitlines() if (frame := _read_frame(line))]
        found |= dict.fromkeys(reversed(frames))
    return tuple(found)


def read_crash(stderr: str) -> tuple[CodeFrame, ...]:
    """Return the frames that faulthandler wrote: of the current thread, or of the main one where that has none."""
    _, header, report = stderr.rpartition("Current thread ")
    threads = re.split(r"^(?=Thread 0x)", report, flags=re.MULTILINE) if header else []
    stacks = [tuple(filter(None, takewhile(bool, map(_read_frame, text.splitlines()[1:])))) for text in threads]
    return next(filter(None, (*stacks[:1], *stacks[::-1])), ())


def last_words(*texts: str) -> str:
    """Return the last line that tells something, of the first text that has one; warnings do not count."""
    lines = (line.strip() for text in texts for line in reversed(_WARNING.sub("", text).splitlines()))
    return next((line for line in lines if any(map(str.isalnum, line))), "")


def shortened(stderr: str, most: int) -> str:
    """Return the end of what was written to stderr, about `most` characters, its last exception among them.

    Where the message of that is longer, as a C++ compiler's is, its middle is left out.
    """
    if len(stderr) <= most:
        return stderr
    lines = stderr.splitlines(keepends=True)
    headers = [at for at, line in enumerate(lines) if line.startswith(HEADER)]
    chain = max((at for at in headers if not is_linked(lines, at)), default=0)  # where the last one begins
    starts = [sum(map(len, lines[:header])) for header in headers if header >= chain]
    if not starts or starts[-1] >= len(stderr) - most:
        return stderr[-most:]
    half = most // 2
    first = next(start for start in starts if starts[-1] - start <= half // 2)
    head, tail = stderr[first : first + half], stderr[-half:]
    return f"{head}\n[... {len(stderr) - first - 2 * half} characters cut here ...]\n{tail}"


def _read_block(lines: Sequence[str]) -> RaisedException | None:
    """Return the exception of one traceback: frames, then type and message up to the next traceback."""
    frames: list[CodeFrame] = []
    for number, line in enumerate(lines):
        if frame := _read_frame(line, *lines[number + 1 : number + 2]):
            frames.append(frame)
        elif frames and (repeated := _REPEATED.match(line)):
            frames += frames[-1:] * int(repeated[1])
        elif not line.startswith(" ") and (exception := _EXCEPTION.match(line)):
            rest = [text for text in lines[number + 1 :] if text not in LINKS]
            message = "\n".join([exception["message"] or "", *rest]).rstrip()
            return RaisedException(type=exception["type"], message=message, frames=tuple(reversed(frames)))
    return None


def _read_frame(line: str, following: str = "") -> CodeFrame | None:
    match = _FRAME.match(line)
    source = following.strip() if following.startswith(_INDENT) and not _FRAME.match(following) else ""
    if match is None:
        return None
    function = match["function"] or "<module>"
    return CodeFrame(file=match["file"], function=function, line=int(match["line"]), source=source)


def _quoted(exception: RaisedException) -> RaisedException | None:
    """Return the exception of another process that a message quotes."""
    _, quoted, rest = exception.message.partition(f"Original {HEADER}:\n")
    if exception.type.endswith(")"):  # of a task of Ray, "RayTaskError(KeyError)": after the task's name and process
        _, quoted, rest = exception.message.partition("\n")
    return _read_block(rest.splitlines()) if quoted else None


def _unwrapped(exception: RaisedException) -> RaisedException:
    """Return an exception as what was raised first, with the first line of that one's message and all frames."""
    if inner := _quoted(exception):
        inner = _unwrapped(inner)
        return replace(inner, frames=(*inner.frames, *exception.frames))
    type_, words = _cause(exception)
    return replace(exception, type=type_, message=words, frames=_with_traced(exception))


def _with_traced(exception: RaisedException) -> tuple[CodeFrame, ...]:
    """Return the frames of an exception, with the user's line that was being compiled below the call that did so."""
    told = _USER_CODE.split(exception.message, 1)[1:]
    lines = takewhile(str.strip, told[0].splitlines()) if told else ()
    traced = [frame for line in lines if (frame := _read_frame(line)) and frame.is_users]
    frames = exception.frames
    start = next((at for at, frame in enumerate(frames) if frame.is_users), len(frames))
    if not traced or any(frame.component is Component.DYNAMO for frame in frames[start:]):
        return frames  # nothing is told, or the user's code was run by Dynamo
    return (*frames[:start], replace(traced[-1], is_traced=True), *frames[start:])


def _cause(exception: RaisedException) -> tuple[str, str]:
    """Return type and words of what TorchScript's interpreter or a compiler raised an exception for, else its own."""
    lines = [exception.first_line, *exception.message.splitlines()[1:]]
    if "TorchScript interpreter" in lines[0]:
        last = next((match for line in reversed(lines) if (match := _PREFIX.match(line))), None)
        return (last["type"], last.string[last.end() :].strip()) if last else (exception.name, lines[0])
    if exception.name not in _WRAPPERS:
        return exception.name, lines[0]
    if lines[0].endswith(":"):  # what follows is all of the cause
        lines = list(filter(None, map(str.strip, lines)))
    block = list(takewhile(str.strip, lines))
    # The cause is on the line after "backend='inductor' raised:", or after "Failed running call_method …:", whose
    # arguments may take several lines.
    is_call = bool(block) and block[0].startswith("Failed running ")
    end = next((number for number, line in enumerate(block) if line.endswith(":") and (is_call or not number)), None)
    text = block[end + 1].strip() if end is not None and end + 1 < len(block) else lines[0]
    shown = None
    while prefix := _PREFIX.match(text):
        shown, text = prefix["type"], text[prefix.end() :].strip()
        if shown not in _WRAPPERS:
            return shown, text
    if got := next(filter(None, map(_GOT.search, block)), None):
        return got["type"], got["words"]
    raises = _RAISES.match(exception.frames[0].source) if exception.frames else None
    raised = raises["type"] if raises and raises["type"] != "Unsupported" else None
    return raised or shown or exception.name, text
