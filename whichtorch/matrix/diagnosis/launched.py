"""What was written to stderr -> the process that failed first, below whatever started it, and what it wrote.

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
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple

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
_FRAME = re.compile(r'^  File "[^"]+", line \d+$')
_UNREADABLE = re.compile(r"^(?:Syntax|Indentation|Tab)Error: ")
_NAMED = re.compile(r"^(?:Process ([\w-]+):|-- Process (\d+) terminated with the following error:)$")  # above a header
_WHO = re.compile(r"\b((?:DataLoader worker )?process \d+)(?=\.$| terminated with )", re.MULTILINE)
# the first frame of an exception that nobody has caught: of a script, a module, or a child of multiprocessing
_OUTERMOST = re.compile(r':\n  File "([^"]+)", line \d+, in (?:<module>|_bootstrap|_run_module_as_main)$', re.MULTILINE)
# an exception that only says that another process has failed, by its type or by the code that the raising line reads
_PASSES_ON = re.compile(
    r":(?:\n .*)*?\n(?:    .*\b(?:exit|return)code\b.*\n(?:[ ~^]+\n)?\S|(?:[\w.]+\.)?(?:(?:ChildFailed|CalledProcess"
    r"|TerminatedWorker)Error|ProcessExitedException|BrokenProcessPool|RuntimeError: DataLoader worker \(pid))"
)
# how another process ended, as such an exception says it
_ENDED = re.compile(rf"(?:non-zero exit status|exit code) (?P<code>\d+)|(?:<Signals\.|signal:? |are \{{){_DEATH}\b")
_SHELL = re.compile(  # the same, as make or a shell says it
    r"(?m)^(?:.*: \*\*\* \[.*\] Error (?P<code>\d+)|(?:.*: \*\*\* \[.*\] |\S+: (?:line \d+: +)?\d+ +)?"
    rf"{_DEATH}(?: \(core dumped\))?(?:  .*)?)$"
)
_ENTRY = re.compile(r"^  rank +: (\d+) .*\n  exitcode +: (-?\d+) ", re.MULTILINE)  # of torchrun; the last is the first
_ERROR_FILE = re.compile(rf"^  traceback : ({re.escape(HEADER)}.*\n(?:  .*\n)*)", re.MULTILINE)
# what a process says if one that it talks to has gone
_PEER_LOST = re.compile(
    r":(?:\n .*)*\n\S.*(?:(?:closed|reset) by peer|Broken pipe|remote process exited|likely closed|[Tt]imed? ?out"
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
    lines = stderr.replace("\0", "").splitlines()  # torch's handler of a worker's signals ends its words with one
    found = _words(lines)
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
        text, said = quoted[1].replace("\n  ", "\n") if quoted else "", "" if entries else around or before
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
    for number, line in enumerate(stderr):
        margin = _MARGIN.match(line)
        streams.setdefault(margin and margin[1], []).append((number, line[margin.end() :] if margin else line))
    found = []
    for rank, numbered in streams.items():
        lines = [line for _, line in numbered]
        starts = [at for at in range(len(lines)) if _begins(lines, at)]
        for start, end in pairwise([*starts, len(lines)]):
            named = _NAMED.match(lines[start - 1]) if start else None
            name = f"rank {rank}" if rank else named[1] or f"process {named[2]}" if named else ""
            found.append(_Words(numbered[start][0], "\n".join(lines[start:end]), name))
    return sorted(found)


def _begins(lines: list[str], at: int) -> bool:
    """Return whether what is written of a failure begins at a line."""
    if lines[at].startswith(HEADER):
        return not is_linked(lines, at)
    is_frame = _FRAME.match(lines[at]) and not (at and lines[at - 1].startswith("  "))
    return lines[at].startswith(_FATAL) or bool(is_frame and any(map(_UNREADABLE.match, lines[at + 1 : at + 5])))


def is_linked(lines: list[str], at: int) -> bool:
    """Return whether the traceback at a line follows the one that caused it."""
    return any(line.strip() in LINKS for line in lines[max(0, at - 3) : at])
