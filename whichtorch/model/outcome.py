"""How a cell ended, what ended an attempt, and what a record keeps to explain it: evidence, and stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from whichtorch.base.grouping import counted
from whichtorch.base.row_enum import RowEnum
from whichtorch.model.base import OpenModel


class Significance(StrEnum):
    """What an outcome says about torch or the script."""

    GOOD = "good"
    RED = "red"  # something is wrong with torch or the script
    NO_VERDICT = "no verdict"
    NONE = "no evidence"  # nothing was learnt about torch


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """All that the program knows of an outcome: every report and every rule reads it here."""

    letter: str  # in a wide grid; capital where red, so that nothing depends on color
    meaning: str  # in the legend
    says: Significance
    junit: str = ""  # element of a JUnit case that is not expected; "" for a plain one
    severity: int = 0  # of red ones: the higher speaks for a cell whose attempts disagree equally often
    style: str = "yellow"  # in a terminal, as rich names it
    color: str = "#5d646e, #9aa2ad"  # on the page, on a light and on a dark ground
    verb: str = "fails"  # what a test does that ends so


_GOOD, _RED, _OPEN, _NONE = Significance.GOOD, Significance.RED, Significance.NO_VERDICT, Significance.NONE


class Outcome(RowEnum):
    """What came of a cell, in one word. A new outcome is a row here and one in docs/contract.md."""

    PASS = "pass", OutcomeRow("p", "ended well", _GOOD, style="green", color="#2a7548, #74c291")
    VACUOUS = (
        "vacuous",
        OutcomeRow("v", "ended well, but without what it declares", _OPEN, "skipped", color="#705d06, #d6bf5c"),
    )
    FAIL = "fail", OutcomeRow("F", "exception or exit code", _RED, "failure", 1, "red", "#b02219, #ff8d84")
    HANG = "hang", OutcomeRow("H", "stuck", _RED, "failure", 4, "bold red", "#86178a, #f093f2", "hangs")
    SLOW = "slow", OutcomeRow("s", "still moving when its time was over", _OPEN, "skipped", color="#1a5aa8, #8fbcf7")
    CRASH = (
        "crash",
        OutcomeRow("C", "process was ended", _RED, "failure", 3, "bold magenta", "#994200, #ffad6e", "crashes"),
    )
    OOM = (
        "oom",
        OutcomeRow(
            "O", "out of memory or processes", _RED, "failure", 2, "red", "#74472a, #dbac88", "runs out of memory"
        ),
    )
    SKIP = "skip", OutcomeRow("n", "does not apply here", _OPEN, "skipped")
    UNBUILDABLE = "unbuildable", OutcomeRow("u", "the environment could not be installed", _NONE, "error")
    BROKEN = "broken", OutcomeRow("b", "installed, but cannot run torch", _NONE, "error")
    ERROR = "error", OutcomeRow("e", "the harness or the machine, not torch", _NONE, "error")

    row: OutcomeRow

    @property
    def is_red(self) -> bool:
        """True for what is wrong with torch or the script."""
        return self.row.says is Significance.RED

    @property
    def word(self) -> str:
        """What reports call it: capitals where it is red, so that nothing depends on color."""
        return self.value.upper() if self.is_red else self.value

    @property
    def is_prevented(self) -> bool:
        """True where nothing was learnt about torch: these are never evidence."""
        return self.row.says is Significance.NONE


class StoppedBy(StrEnum):
    """What ended an attempt."""

    EXIT = "exit"  # it ended by itself
    TIMEOUT = "timeout"  # the wall clock
    STALL = "stall"  # evidence that nothing in the tree can go on
    MEMORY = "memory"  # the tree's resident memory passed its limit
    PROCESSES = "processes"  # the tree had more processes than its limit
    OUTPUT = "output"  # it wrote more than the disk can be asked to hold
    INTERRUPT = "interrupt"  # Ctrl-C, or the tool went away


class WaitEdge(OpenModel):
    """A thread that waits for something, and for whom, where that is known."""

    pid: int = 0
    tid: int = 0
    function: str = ""  # the one in which it waits, or the one that asked for the wait
    place: str = ""  # the user's own line, "train.py:88"
    text: str = ""  # the wait as a clause; "" where the other fields say all
    waiting: str = ""  # a value of `process.evidence.waiting.Waiting`; another version may know more of them
    partner: int | None = None  # tid of the thread, or pid of the child, that it waits for
    holds: str | None = None  # what others wait for, a value of `process.evidence.waiting.Waiting`
    evidence: str = ""  # how the partner is known


def _edges(values: Sequence[object]) -> list[object]:
    """Leave out values that are no edges, which a damaged record may hold."""
    return [value for value in values if isinstance(value, Mapping | WaitEdge)]


class StuckThread(OpenModel):
    """The thread that a hang is stuck in."""

    pid: int = 0
    tid: int | None = None


class Diagnosis(OpenModel):
    """What the stacks of a stopped attempt show."""

    kind: str = ""  # a value of `HangKind`; another version may know more of them
    summary: str = ""
    stage: str | None = None  # of the call in the dispatcher
    place: str | None = None  # of the call in the dispatcher, in words
    operator: str | None = None  # "aten::add.Tensor"
    key: str | None = None  # the dispatch key
    cycle: Annotated[tuple[WaitEdge, ...], BeforeValidator(_edges)] = ()  # from the stuck thread on
    closed: bool = False  # `cycle` comes back to its start: nothing in it can ever go on
    stuck: StuckThread | None = None
    frames: tuple[str, ...] = ()  # of the signature
    seconds: float = 0  # for taking the stacks
    path: str = ""  # the call's path in the dispatcher, as diagnosis.txt shows it
    stacks: tuple[str, ...] = ()  # of the threads, as diagnosis.txt shows them, the stuck one first
    left_out: str = ""  # which threads are not among `stacks`, as diagnosis.txt says it


class ThreadWait(OpenModel):
    """The kernel's view of one thread of a stalled process tree."""

    pid: int = 0
    tid: int = 0
    name: str = ""
    state: str = ""  # the kernel's letter
    wait: str = ""  # the supervisor's word: gil, futex, child, pipe, socket, poll, lock, stopped, ended
    detail: str = ""  # of `wait`


class DispatchedCall(OpenModel):
    """One operator that was dispatched, as `inside/startup/observe.py` writes it; None is "not known"."""

    op: str = ""  # "aten::mm"
    under: tuple[str, ...] = ()  # operators that enclose it, the innermost first
    devices: tuple[str, ...] = ()  # types of devices that its tensors are on
    keys: tuple[str, ...] = ()
    keys_from: str = ""  # how the keys are known: call, device or stacks
    grad_mode: bool | None = None
    python_key: bool | None = None
    thread: Literal["main", "other"] | None = None
    count: int = 1  # how many calls were alike


class DispatchedCalls(OpenModel):
    """All operators that an attempt was seen to dispatch, or why none were seen."""

    operators: tuple[DispatchedCall, ...] | None = None
    source: str = Field(
        default="", validation_alias="from", serialization_alias="from"
    )  # "stacks": only calls that have not returned
    all_threads: bool = False  # False: calls of other threads than the main one are missing
    problem: str = ""


class Headway(OpenModel):
    """The headway of a tree in an attempt that ran to its timeout (see `process.evidence.headway`)."""

    paused: float = 0  # seconds for which it had done nothing when the clock ended
    needed: float = 0  # seconds of such a pause that are evidence of a hang
    seconds: dict[str, float] = {}  # of headway by each means: core, processes, disk, streams, output
    late: tuple[str, ...] = ()  # the means by which it still made headway in the last `needed` seconds
    wakes_in: float | None = None  # seconds until a process wakes that sleeps on purpose
    stretch: float = 1.0  # how many times longer it took because its threads queued for cores

    @property
    def makes_headway(self) -> bool:
        """True where the last pause is too short to be evidence of a hang."""
        return self.paused < self.needed


class BusyLoop(OpenModel):
    """The loop in the user's code in which an attempt was busy when it was stopped."""

    place: str = ""  # "train.py:4"
    words: str = ""  # for how long, and what has changed in it
    repeats: bool = False  # it came back to the same state: it never ends
    moves: bool = False  # its variables still change: it may be only slow


class SharedProcess(OpenModel):
    """Whether other tests of a command ran before a test in its process, and what it came to where they did."""

    alone: bool = False  # none ran before it
    after: str = ""  # of a test that was run alone because it went wrong after others: the id of the last of these
    outcome: str = ""  # what it came to there, a value of `Outcome`
    root: str = "."  # what pytest's ids are relative to, from the folder where it was started


class ChainEvidence(OpenModel):
    """Which run of a chain decided its outcome, and which cached files of earlier runs the later ones read."""

    run: int = 1  # the one that decided, counted from 1
    runs: int = 1
    seconds: tuple[float, ...] = ()  # of each run that was made
    writer: str = ""  # label of the environment in which the first run was made, where that is another
    writer_interpreter: str = ""  # of that environment, where it is the user's own
    writer_options: tuple[str, ...] = ()  # that ask for that environment, where its release does not say which it is
    cached: dict[str, int] = {}  # files that were there before the run that decided, by the name of their cache
    read: dict[str, int] | None = None  # those of them that were read, in later runs; None: not known
    problem: str = ""  # why that is not known
    culprit: str = ""  # the cache without which the run passes
    cure: str = ""  # in words: what makes the run pass, or that nothing does that was tried

    @property
    def words(self) -> str:
        """Which run went wrong, and with which cache."""
        where = f" in {self.writer}" if self.writer else ""
        before = "" if self.run == 1 else "run 1 passes" if self.run == 2 else f"runs 1 to {self.run - 1} pass"
        own = f"run {self.run} of {self.runs}" + (where if self.run == 1 else "")
        return "; ".join(filter(None, (own, before + (where if self.run == 2 else ""), self.cure)))

    @property
    def unread(self) -> str:
        """Why a pass does not test caches: no run read what an earlier one had cached; "" if one did."""
        if self.run == 1 or self.read is None or self.read:
            return ""
        files = ", ".join(f"{counted(count, 'file')} of {name}" for name, count in self.cached.items())
        return f"run {self.run} read nothing that was cached before it" + (f": {files}" if files else ": nothing was")


TRIED_NAMED = 3  # accesses that a note names


class AttemptEvidence(OpenModel):
    """What an outcome rests on, beyond how the process ended."""

    stall: tuple[ThreadWait, ...] = ()
    samples: tuple[tuple[str, ...], ...] = ()  # of a busy process, spread over its attempt; the innermost frame first
    headway: Headway | None = None  # of an attempt that ran to its timeout
    loop: BusyLoop | None = None  # of what was busy
    queued: float = 0  # seconds for which the threads of a measured attempt, and of its children, waited for a core
    decided: str = ""  # which evidence decided between hang and slow, a value of `diagnosis.verdict.Decider`
    observed: DispatchedCalls | None = None  # of an observing attempt, or of a hang with declared conditions
    start: str = "cold"  # or "fork" and a level of `process.script_reading`
    cold_because: str = ""  # why it was not forked, where that was asked for
    hardware: str = ""  # the kind of machine that was asked for
    host: str = ""  # the one of a cluster that it ran on
    tests: tuple[str, ...] | None = None  # ids that a command's pytest collected; None: no pytest told of tests
    shared: SharedProcess | None = None  # of a test of a command
    written: tuple[str, ...] = ()  # files of the project's copy that the command wrote
    unused: bool = False  # no process of the script imported torch
    chain: ChainEvidence | None = None  # of runs that shared caches
    process: str = ""  # that failed first of those that it started, "rank 1"; "" where that is itself, or not known
    sandbox: str = ""  # what built its sandbox; "" for none
    tried: tuple[str, ...] = ()  # in a sandbox, what it tried to reach and could not, "connect to 203.0.113.7:443"

    @property
    def blocked(self) -> str:
        """What it tried to reach from its sandbox, in words; "" for nothing."""
        more = f" and {len(self.tried) - TRIED_NAMED} more" if len(self.tried) > TRIED_NAMED else ""
        return f"tried to {', to '.join(self.tried[:TRIED_NAMED])}{more}; blocked" if self.tried else ""

    @property
    def is_forked(self) -> bool:
        """Whether its process was forked with torch already imported."""
        return self.start != "cold"
