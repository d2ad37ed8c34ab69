"""The nouns: what is asked for, what is there, what was run and what came of it.

All of them are frozen, so that a record says tomorrow what it said today. Those that reach a file
are pydantic models: their JSON Schema is the contract that other programs read.

It is longer than other modules because records hold all of these forms, and a record may import no room.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from whichtorch.matrix.privacy.redaction import restored

NO_PATCH = "none"  # a release as it is, where a patch could be named
ANY_HARDWARE = "any"  # whatever machine there is, where a kind could be named
UNOBSERVED = "conditions could not be observed"  # begins the reason of a pass that may be vacuous
SCHEMA = 1  # of records and of --json; raised when a reader would misunderstand the new form
# as it is stored, a path may begin with ~ and hide a user's name: whoever reads it gets one that can be opened
StoredPath = Annotated[Path, AfterValidator(restored)]


class Model(BaseModel):
    """Base of all nouns: frozen, and strict about names so that a typo is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def digest(value: object, length: int = 12) -> str:
    """Return the first `length` hex digits of the SHA-256 of `value` written as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


class Significance(StrEnum):
    """What an outcome says about torch or the script."""

    GOOD = "good"
    RED = "red"  # something is wrong with torch or the script
    NO_VERDICT = "no verdict"
    NONE = "no evidence"  # nothing was learnt about torch


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """All that the program knows of an outcome: every report and every rule reads it here."""

    letter: str  # in a wide grid; capital where red, so that nothing depends on colour
    meaning: str  # in the legend
    says: Significance
    junit: str = ""  # element of a JUnit case that is not expected; "" for a plain one
    severity: int = 0  # of red ones: the higher speaks for a cell whose attempts disagree equally often
    style: str = "yellow"  # in a terminal, as rich names it
    colour: str = "#5d646e, #9aa2ad"  # on the page, on a light and on a dark ground
    verb: str = "fails"  # what a test does that ends so


_GOOD, _RED, _OPEN, _NONE = Significance.GOOD, Significance.RED, Significance.NO_VERDICT, Significance.NONE


class Outcome(StrEnum):
    """What came of a cell, in one word. A new outcome is a row here and one in docs/contract.md."""

    PASS = "pass", OutcomeRow("p", "ended well", _GOOD, style="green", colour="#2a7548, #74c291")
    VACUOUS = (
        "vacuous",
        OutcomeRow("v", "ended well, but without what it declares", _OPEN, "skipped", colour="#705d06, #d6bf5c"),
    )
    FAIL = "fail", OutcomeRow("F", "exception or exit code", _RED, "failure", 1, "red", "#b02219, #ff8d84")
    HANG = "hang", OutcomeRow("H", "stuck", _RED, "failure", 4, "bold red", "#86178a, #f093f2", "hangs")
    SLOW = "slow", OutcomeRow("s", "still moving when its time was over", _OPEN, "skipped", colour="#1a5aa8, #8fbcf7")
    CRASH = (
        "crash",
        OutcomeRow("C", "ended by a signal", _RED, "failure", 3, "bold magenta", "#994200, #ffad6e", "crashes"),
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

    def __new__(cls, word: str, row: OutcomeRow) -> Self:
        """Make the word a string, as any StrEnum's, and keep its row."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.row = row
        return member

    @property
    def is_red(self) -> bool:
        """True for what is wrong with torch or the script."""
        return self.row.says is Significance.RED

    @property
    def word(self) -> str:
        """What reports call it: capitals where it is red, so that nothing depends on colour."""
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


class Role(StrEnum):
    """What an attempt is made for."""

    JUDGE = "judge"  # to see how the script ends
    OBSERVE = "observe"  # to see what it does on the way: never evidence of how it ends


class Build(Model):
    """Where a wheel comes from. `backend` is uv's --torch-backend."""

    name: str
    index_url: str | None = None
    find_links: str | None = None  # a folder or page of wheels
    backend: str | None = None
    requirements: tuple[str, ...] = ()  # installed with torch, e.g. a pinned numpy
    nightly: bool = False  # versions are .dev releases


class Config(Model):
    """A named set of environment variables and start-up hooks."""

    name: str
    env: dict[str, str] = {}  # values may name {beside}, the folder that `beside` was installed into
    hooks: tuple[str, ...] = ()  # modules of matrix/environments/inside/startup, run inside the environment
    beside: tuple[str, ...] = ()  # requirements installed next to, not into, the environment
    summary: str = ""


class Patch(Model):
    """A change of torch's Python files, tried in a copy of an installation."""

    name: str
    text: str  # a unified diff
    option: str = ""  # what names it on a command line: its file, or its name in a matrix file

    @property
    def key(self) -> str:
        """What makes a patch the same, whatever it is called."""
        return digest(self.text)

    @property
    def title(self) -> str:
        """What tells it from other patches, and from what it was before it was edited: "mine@3fa2c1"."""
        return f"{self.name}@{self.key[:6]}"


class Hardware(Model):
    """A kind of machine, by what it says of itself: every value that is named applies."""

    name: str
    gpu: str = ""  # a glob, as are arch, cpu and host: of a model as its driver names it, "*H100*"
    driver: str = ""  # a specifier, ">=570"
    arch: str = ""  # "x86_64"
    cpu: str = ""
    host: str = ""


class Request(Model):
    """One environment as asked for: a torch release from a build, or an existing interpreter."""

    torch: str  # "2.11.0", "2.16.0.dev20261120+cpu", a wheel's path; "" for an existing interpreter
    python: str  # "3.11"; "" for an existing interpreter
    build: Build
    config: Config
    patch: Patch | None = None  # None: as it is installed
    hardware: Hardware | None = None  # None: any machine
    interpreter: Path | None = None  # an existing environment, used as it is
    requirements: tuple[str, ...] = ()  # for every environment of a matrix file
    lock: tuple[str, ...] = ()  # exact pins, "name==version" or "name @ url": nothing else is installed
    problem: str | None = None  # why it cannot be made, where planning already knows
    show_python: bool = False  # Python is an axis of the matrix, so it is part of the label
    matrix: Path | None = None  # the file that says what build, config and requirements are, but for the default one

    @property
    def label(self) -> str:
        """What people call it: stable from night to night, unique within a matrix."""
        if self.interpreter is not None:
            parts = ["python", _folder_name(self.interpreter)]
        else:
            wheel = self.torch.endswith(".whl")
            version = Path(self.torch).name.split("-")[1] if wheel else self.torch
            parts = ["torch", version, "wheel" if wheel else self.build.name]
            parts += [f"py{self.python}"] if self.show_python else []
            parts += [f"lock{digest(self.lock, 6)}"] if self.lock else []
        if self.config.name != "default":
            parts.append(self.config.name)
        label = "-".join(parts) + (f"+{self.patch.name}" if self.patch is not None else "")
        return label if self.hardware is None else f"{label}@{self.hardware.name}"

    @property
    def options(self) -> tuple[str, ...]:
        """The command-line options that ask for just this environment again."""
        if self.interpreter is not None:
            options: tuple[str, ...] = ("--interpreter", str(self.interpreter))
        else:
            options = ("--torch", self.torch, "--build", self.build.name)
            options += ("--python", self.python) if self.show_python else ()
        options = options if self.config.name == "default" else (*options, "--config", self.config.name)
        options = options if self.patch is None else (*options, "--patch", self.patch.option)
        options = options if self.hardware is None else (*options, "--hardware", self.hardware.name)
        return options if self.matrix is None else ("--matrix", str(self.matrix), *options)

    @property
    def axes(self) -> dict[str, str]:
        """What is asked for along each axis, the easiest to change first."""
        patch = NO_PATCH if self.patch is None else self.patch.title
        installed = {"torch": self.torch, "python": self.python, "build": self.build.name}
        return {"config": self.config.name, "patch": patch, **installed, "hardware": self.hardware_name or ANY_HARDWARE}

    @property
    def hardware_name(self) -> str:
        """The kind of machine that is asked for, "" for any."""
        return "" if self.hardware is None else self.hardware.name

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two requests the same: the installation, the config and the hardware."""
        return self.install_key, self.config.name, self.hardware_name

    @property
    def unpatched(self) -> Request:
        """The request for what the patch is applied to."""
        return self.model_copy(update={"patch": None})

    @property
    def install_key(self) -> str:
        """Names the installation: all that `label` says and the requirements, but not the config."""
        request = self.model_dump(mode="json", exclude=_NOT_INSTALLED)
        if not self.lock:
            del request["lock"]
        if self.patch is not None:
            request["patch"] = self.patch.key
        return digest(request)


def _folder_name(interpreter: Path) -> str:
    """Return the name of the environment that holds `interpreter` (ENV/bin/python)."""
    folder = interpreter.parent.parent if interpreter.parent.name in {"bin", "Scripts"} else interpreter.parent
    return folder.name or interpreter.name


_NOT_INSTALLED = {"config", "hardware", "problem", "show_python", "matrix", "patch"}  # parts of a request


class ProbedFacts(Model):
    """Base of what the probe writes: a newer probe may add fields, older records hold fewer; only set ones are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    @model_serializer(mode="wrap")
    def _set_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name in self.model_fields_set}


class TorchConfig(ProbedFacts):
    """What `torch.__config__.show()` says."""

    components: tuple[str, ...] = ()
    settings: dict[str, str] = {}


class Processor(ProbedFacts):
    """The CPUs of a machine."""

    model: str = ""
    count: int | None = None
    usable: int | None = None  # by this process


class MetaKernel(ProbedFacts):
    """Where the Meta kernel of aten::mm is registered; one in Python takes the GIL."""

    registered: str | None = None
    kind: str | None = None
    python: bool | None = None


class Fingerprint(ProbedFacts):
    """What tells one torch and its machine from another. A string "unknown (ValueError)" replaces a failed answer."""

    torch: str | None = None
    git_version: str | None = None  # the commit that torch was built from
    debug: bool | str | None = None
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None
    python: str | None = None
    machine: str | None = None
    system: str | None = None
    glibc: str | None = None
    numpy: str | None = None
    config: TorchConfig | str | None = None
    parallel: dict[str, str] | str | None = None  # of torch.__config__.parallel_info()
    openmp_loaded: tuple[str, ...] | str | None = None  # file names of shared libraries
    blas_loaded: tuple[str, ...] | str | None = None
    cuda_available: bool | str | None = None
    gpus: tuple[str, ...] | str | None = None
    cpu: Processor | str | None = None
    meta_mm: MetaKernel | str | None = None
    dispatch: dict[str, str] | str | None = None  # dispatch tables as torch writes them, by operator


class Environment(Model):
    """What is really there, with a config applied; or why it is not."""

    id: str  # hash of what was installed, build, Python and config
    label: str
    torch: str  # the version found inside; the one asked for where there is none
    python: str  # full version, "3.11.7"
    build: str
    config: str
    patch: str = NO_PATCH  # name and hash: "mine@3fa2c1"
    hardware: str = ""  # the kind of machine that was asked for, "" for any
    interpreter: StoredPath | None = None
    packages: dict[str, str] = {}
    fingerprint: Fingerprint = Fingerprint()
    outcome: Outcome | None = None  # UNBUILDABLE or BROKEN, else None
    reason: str | None = None  # of `outcome`, one line
    log: StoredPath | None = None  # of `outcome`, where the whole story is
    notes: tuple[str, ...] = ()  # what was pinned and why
    options: tuple[str, ...] = ()  # of the command line, that ask for just this environment again
    variables: dict[str, str] = {}  # that its cells run with: the config's, and the user's that are allowed here

    @property
    def axes(self) -> dict[str, str]:
        """What it is along each axis, as a request names it."""
        python = ".".join(self.python.split(".")[:2])
        installed = {"torch": self.torch, "python": python, "build": self.build}
        return {"config": self.config, "patch": self.patch, **installed, "hardware": self.hardware or ANY_HARDWARE}

    @property
    def is_usable(self) -> bool:
        """True where cells can run."""
        return self.outcome is None


class Expectation(Model):
    """One line of a scenario's `expect`: where all that it names applies, this outcome is expected."""

    outcome: Outcome
    torch: str = ""  # a specifier; pre-releases count
    python: str = ""  # a specifier
    build: str = ""  # a glob, as are the next
    config: str = ""
    variant: dict[str, str] = {}
    why: str = ""


class Condition(Model):
    """What must have happened for a result to mean anything. Observed by the tool, not the script.

    An operator that was dispatched, with all that is said of it true of one and the same call.
    """

    op: str  # "aten::mm"
    under: str | None = None  # an operator that encloses the call, at any depth
    keys: tuple[str, ...] = ()  # dispatch keys that its tensors have between them
    grad_mode: bool | None = None
    thread: Literal["main", "other"] | None = None
    python_key: bool | None = None  # a tensor subclass or a dispatch mode took part
    variant: dict[str, str] = {}  # asked of these variants only


class ConditionResult(Model):
    """Whether a condition was met, and what was seen."""

    condition: Condition
    met: bool | None  # None: what was looked at does not tell
    seen: str  # in words: that it happened, or what happened instead, or what is not known


class Scenario(Model):
    """A script and what its header says of it."""

    name: str  # "fake_tensor/add_meta"; a user's script is named by its path
    path: Path
    source_hash: str
    summary: str = ""
    tags: tuple[str, ...] = ()
    timeout: float = Field(default=60, gt=0)  # seconds, wall clock
    has_timeout: bool = False  # its header names one, which is not looked beyond
    memory_mb: int = Field(default=4096, gt=0)  # resident, whole tree
    links: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    expect: tuple[Expectation, ...] = ()
    variants: dict[str, tuple[str, ...]] = {}
    in_suite: bool = True  # runs in a scratch folder; a user's script runs where the user is
    on_request: bool = False  # left out unless asked for by name: the controls
    one_factor: bool = False  # the first value of each variant is the base; the others differ from it in one
    native: tuple[str, ...] = ()  # C++ sources beside the script, built into one extension module
    data: tuple[str, ...] = Field(default=(), exclude=True)  # files beside it that its scratch folder has, too

    def declared(self, variant: Mapping[str, str]) -> tuple[Condition, ...]:
        """Return the conditions that it declares for a variant."""
        return tuple(condition for condition in self.conditions if condition.variant.items() <= variant.items())


class Limits(Model):
    """What an attempt may use. Part of its key: a pass within 60 s says nothing about 10 s."""

    timeout: float  # seconds
    memory_mb: int
    stall: bool = True  # may be stopped early on evidence


class OpenModel(Model):
    """Base of the facts that an attempt keeps. It writes only fields that were set, and keeps those it does not know.

    A record of an older or newer version is therefore read, and written again with the same fields.
    """

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True, serialize_by_alias=True)

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        names = {fields[name].serialization_alias or name if name in fields else name for name in self.model_fields_set}
        return {name: value for name, value in write(self).items() if name in names}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Mapping[str, Any], handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of the fields, which the serializer would hide."""
        return handler({name: value for name, value in schema.items() if name != "serialization"})


class Waiting(StrEnum):
    """What a thread can wait for."""

    GIL = "the GIL"
    LOCK = "a lock"
    SEMAPHORE = "a semaphore"
    CONDITION = "a condition"
    EVENT = "an event"
    BARRIER = "a barrier"
    QUEUE = "a queue"
    FUTURE = "a future"
    EVENT_LOOP = "the event loop"
    THREAD = "the end of a thread"
    CHILD = "a child"
    COLLECTIVE = "the other ranks"
    RENDEZVOUS = "the rendezvous of the ranks"
    PIPE = "a pipe"
    SOCKET = "a socket"
    FILE = "a file"
    FILE_LOCK = "the lock of a file"
    OPENMP = "OpenMP"
    IO = "I/O"
    DEVICE = "the GPU"
    SLEEP = "time to pass"
    STOPPED = "SIGCONT"
    FUTEX = "a futex"  # the kernel's word, where no frame says what it stands for


HOST_STEP = 1 << 22  # Linux numbers processes and threads below; in a picture of several machines, the next ones above


def number_on_host(pid: int) -> int:
    """Return the number of a process or thread on its own machine."""
    return pid % HOST_STEP


class WaitEdge(OpenModel):
    """A thread that waits for something, and for whom, where that is known."""

    pid: int = 0
    tid: int = 0
    function: str = ""  # where it waits, or that asked for the wait
    place: str = ""  # the user's own line, "train.py:88"
    text: str = ""  # the wait as a clause; "" where the other fields say all
    waiting: str = ""  # a value of `Waiting`; another version may know more of them
    partner: int | None = None  # tid of the thread, or pid of the child, that it waits for
    holds: str | None = None  # what others wait for, a value of `Waiting`
    evidence: str = ""  # how the partner is known

    def words(self, before: WaitEdge | None = None) -> str:
        """Return the edge as a sentence; "for it" is the thread of the edge before."""
        if self.text:
            return self.text
        holds = f"holds {self.holds} and " if self.holds else ""
        function = f" in {self.function}" if self.function else ""
        function += f" ({self.place})" if self.place and self.place not in self.function else ""
        thread = f"thread {number_on_host(self.tid)}"
        if self.waiting == Waiting.CHILD:
            child = f" for child {number_on_host(self.partner)}" if self.partner else " for a child"
            return f"process {number_on_host(self.pid)} {holds}waits{function}{child}"
        if self.waiting == Waiting.THREAD or (self.holds and self.partner):
            partner = number_on_host(self.partner or 0)
            target = "it" if before and self.partner == before.tid else f"thread {partner}"
            target = target if self.partner else "another thread"
            return f"{thread} {holds}waits{function} for {target}"
        if self.holds:
            return f"{thread} {holds}waits{function} for {self.waiting}"
        return f"{thread}{function} waits for {self.waiting}"


def cycle_sentences(edges: Sequence[WaitEdge]) -> list[str]:
    """Return a sentence for each edge of a cycle or chain, in their order."""
    return [edge.words(before) for edge, before in zip(edges, (None, *edges), strict=False)]


def _edges(values: Sequence[object]) -> list[object]:
    """Leave out what is no edge, as a damaged record may hold it."""
    return [value for value in values if isinstance(value, Mapping | WaitEdge)]


class StuckThread(OpenModel):
    """The thread that a hang is stuck in."""

    pid: int = 0
    tid: int | None = None


class Diagnosis(OpenModel):
    """What the stacks of a stopped attempt show."""

    kind: str = ""  # a value of `diagnosis.hang.hang_diagnosis.HangKind`; another version may know more of them
    summary: str = ""
    stage: str | None = None  # of the call in the dispatcher
    place: str | None = None  # of the call in the dispatcher, in words
    operator: str | None = None  # "aten::add.Tensor"
    key: str | None = None  # the dispatch key
    cycle: Annotated[tuple[WaitEdge, ...], BeforeValidator(_edges)] = ()  # from the stuck thread on
    closed: bool = False  # `cycle` comes back to its start: nothing in it can ever go on
    stuck: StuckThread | None = None
    frames: tuple[str, ...] = ()  # of the signature
    seconds: float = 0  # that taking the stacks took
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
    count: int = 1  # of alike calls


class DispatchedCalls(OpenModel):
    """All operators that an attempt was seen to dispatch, or why none were seen."""

    operators: tuple[DispatchedCall, ...] | None = None
    source: str = Field(
        default="", validation_alias="from", serialization_alias="from"
    )  # "stacks": only calls that have not returned
    all_threads: bool = False  # False: calls of other threads than the main one are missing
    problem: str = ""


class Headway(OpenModel):
    """How a tree got on over the whole of an attempt that ran to its timeout (see `process.evidence.headway`)."""

    paused: float = 0  # seconds for which it had done nothing when the clock ended
    needed: float = 0  # seconds of such a pause that are evidence of a hang
    seconds: dict[str, float] = {}  # for how long it got on by which means: core, processes, disk, streams, output
    late: tuple[str, ...] = ()  # those means by which it still got on in the last `needed` seconds
    wakes_in: float | None = None  # seconds until a process wakes that sleeps by its own will
    stretch: float = 1.0  # times as long as with a core for each of its threads, for the queue that they stood in

    @property
    def gets_on(self) -> bool:
        """True where the last pause is too short to be evidence of a hang."""
        return self.paused < self.needed


class BusyLoop(OpenModel):
    """The loop of the user's in which an attempt was busy when it was stopped."""

    place: str = ""  # "train.py:4"
    words: str = ""  # for how long, and what has changed in it
    repeats: bool = False  # it came back to the same state: it never ends
    moves: bool = False  # its variables still change: it may be only slow


class AttemptEvidence(OpenModel):
    """What an outcome rests on, beyond how the process ended."""

    stall: tuple[ThreadWait, ...] = ()
    samples: tuple[tuple[str, ...], ...] = ()  # of a busy process, spread over its attempt; the innermost frame first
    headway: Headway | None = None  # of an attempt that ran to its timeout
    loop: BusyLoop | None = None  # of what was busy
    decided: str = ""  # which evidence decided between hang and slow, a value of `diagnosis.verdict.Decider`
    observed: DispatchedCalls | None = None  # of an observing attempt, or of a hang with declared conditions
    start: str = "cold"  # or "fork", and what had been imported: torch, dynamo or inductor
    cold_because: str = ""  # why it was not forked, where that was asked for
    hardware: str = ""  # the kind of machine that was asked for
    host: str = ""  # of a cluster, that it ran on

    @property
    def is_forked(self) -> bool:
        """Whether its process found torch imported."""
        return self.start != "cold"


class Attempt(Model):
    """One supervised run of a cell."""

    role: Role = Role.JUDGE
    outcome: Outcome
    seconds: float
    stopped_by: StoppedBy
    exit_code: int | None = None
    signal: str | None = None
    peak_rss_mb: float = 0
    survivors: tuple[str, ...] = ()  # processes that outlived the script, "name (pid): command line"
    stdout: str = ""  # paths, relative to the run's folder
    stderr: str = ""
    limit: float = 0  # seconds it was given: adaptive, so it may be less than the scenario's timeout
    cpu_seconds: float = 0
    started: str = ""  # UTC, ISO 8601, to the microsecond: with the key it tells an attempt from all others
    stdout_bytes: int = 0  # as written; the file keeps head and tail
    stderr_bytes: int = 0
    stacks: str = ""  # folder of the raw stacks taken before it was stopped; a path as stdout's
    diagnosis: Diagnosis | None = None  # what they show
    note: str = ""  # why this outcome, where that is not obvious
    message: str = ""  # of a `fail`: what the exception, or the one it was raised for, says in its first line
    evidence: AttemptEvidence = AttemptEvidence()


class Record(Model):
    """What is stored of a finished attempt, one JSON object per line."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    key: str  # `record_key`
    environment: str  # id
    scenario: str
    source_hash: str
    variant: dict[str, str]
    limits: Limits
    attempt: Attempt
    signature: str | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def judging_records(records: Iterable[Record]) -> tuple[Record, ...]:
    """Return the records of attempts that judge a cell, without those that only observe it."""
    return tuple(record for record in records if record.attempt.role is Role.JUDGE)


def combine(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt that speaks for a cell.

    An observing attempt never does, and a `slow` one only while nothing longer decided. Of several, the most frequent
    red outcome speaks, since a pass does not take a hang back.
    """
    judging = [attempt for attempt in attempts if attempt.role is Role.JUDGE]
    decided = [attempt for attempt in judging if attempt.outcome is not Outcome.SLOW] or judging
    counts = Counter(attempt.outcome for attempt in decided)

    def weight(attempt: Attempt) -> tuple[bool, int, int]:
        return attempt.outcome.is_red, counts[attempt.outcome], attempt.outcome.row.severity

    return max(decided, key=weight, default=None)


def record_key(environment: str, source_hash: str, variant: dict[str, str], limits: Limits) -> str:
    """Return what makes two attempts the same test, so that nothing is tested twice."""
    return digest([environment, source_hash, variant, limits.model_dump()], 20)


def variant_suffix(variant: dict[str, str]) -> str:
    """Return "[grad=off,op=mm]", or nothing for a scenario without variants."""
    return "[" + ",".join(f"{name}={value}" for name, value in variant.items()) + "]" if variant else ""


class Doubt(StrEnum):
    """Why a pass may mean nothing."""

    UNMET = "unmet"  # its conditions were not met
    UNOBSERVED = "unobserved"  # nobody could observe them


class Cell(Model):
    """An environment, a scenario and a variant, with what came of them."""

    environment: str  # id
    scenario: str
    variant: dict[str, str] = {}
    source_hash: str = ""  # of the script that was run
    outcome: Outcome
    signature: str | None = None
    expected: bool
    known: str = ""  # why its header expects something else than a pass
    seconds: float  # of the attempt that gave the outcome
    attempts: tuple[Attempt, ...] = ()  # those that judge
    conditions: tuple[ConditionResult, ...] = ()  # of a pass or a hang whose scenario declares some
    reused: int = Field(default=0, exclude=True)  # how many attempts came from earlier runs
    reason: str | None = None  # of an outcome that no attempt explains
    doubt: Doubt | None = None  # why its pass may mean nothing; of a vacuous cell, too
    conflict: str = ""  # of a merged cell: which part saw what, where they disagree

    @model_validator(mode="before")
    @classmethod
    def _with_doubt(cls, fields: Any) -> Any:
        """Give a cell its doubt where it is not told: records of before have it in their outcome and reason only."""
        if isinstance(fields, dict) and fields.get("doubt") is None:
            if fields.get("outcome") == Outcome.VACUOUS:
                return fields | {"doubt": Doubt.UNMET}
            if fields.get("outcome") == Outcome.PASS and str(fields.get("reason") or "").startswith(UNOBSERVED):
                return fields | {"doubt": Doubt.UNOBSERVED}
        return fields

    @property
    def name(self) -> str:
        """What --scenario takes to run just this: the scenario, and the variant in brackets."""
        return self.scenario + variant_suffix(self.variant)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What the stacks of the last attempt with this outcome show."""
        attempts = (attempt for attempt in reversed(self.attempts) if attempt.outcome == self.outcome)
        return next((attempt.diagnosis for attempt in attempts if attempt.diagnosis), None)

    @property
    def what(self) -> str | None:
        """What happened, for people: where a hung cell is stuck, else its signature."""
        shown = self.diagnosis if self.outcome in {Outcome.HANG, Outcome.SLOW} else None
        return shown.summary if shown else self.signature

    @property
    def message(self) -> str:
        """What the exception says of the attempt that speaks for it."""
        attempts = (attempt for attempt in reversed(self.attempts) if attempt.outcome is self.outcome)
        return next((attempt.message for attempt in attempts), "")

    @property
    def is_doubted(self) -> bool:
        """True for a pass whose conditions were not met, or that nobody could observe."""
        return self.doubt is not None

    @property
    def agreement(self) -> tuple[int, int]:
        """How many attempts ended as it did, and of how many; those that another look decided do not count."""
        shown = Outcome.PASS if self.outcome is Outcome.VACUOUS else self.outcome  # as its attempts ended
        outcomes = [attempt.outcome for attempt in self.attempts if attempt.outcome is not Outcome.SLOW]
        return sum(outcome is shown for outcome in outcomes), len(outcomes)

    @property
    def flaky(self) -> str | None:
        """Return "k of n" where attempts disagree."""
        agreeing, made = self.agreement
        return f"{agreeing} of {made}" if agreeing < made else None


class Run(Model):
    """One call of the tool."""

    id: str
    name: str = ""  # that a user gave it
    started: str  # UTC, ISO 8601
    seconds: float = 0
    home: str = ""  # the folder that the attempts' paths are relative to; stored, it may begin with ~
    command: tuple[str, ...] = ()
    planned: int = 0  # cells; 0 where a search decides as it goes
    ended: bool = False  # False while it runs, and where it was killed
    interrupted: bool = False
    exit_code: int | None = None  # of a matrix
    outcomes: dict[Outcome, int] = {}  # of its cells; of a run that has ended
    unexpected: int = 0  # of its cells: those that no scenario expects so
    parts: tuple[str, ...] = ()  # ids of the runs that were merged into it

    @property
    def kind(self) -> str:
        """The command that made it, such as "matrix"."""
        return self.command[0] if self.command else ""


class Result(Model):
    """A whole run: what --json writes, and what every report is made from."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    run: Run
    scenarios: tuple[Scenario, ...] = ()
    environments: tuple[Environment, ...]
    cells: tuple[Cell, ...]

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @property
    def is_complete(self) -> bool:
        """True where every planned cell is there."""
        return self.run.ended and not self.run.interrupted and len(self.cells) >= self.run.planned
