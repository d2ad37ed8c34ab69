"""Check what the tool needs of a machine, and that each control scenario gets its own outcome.

A problem comes with its remedy. The controls need no torch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from whichtorch.base.errors import UsageError
from whichtorch.environments.commander import InstallError, uv_path
from whichtorch.environments.expansion import existing
from whichtorch.environments.index.sources import answers, build_named, configured_sources, without_credentials
from whichtorch.hangs.stacks import Process
from whichtorch.matrix.lab import opened_lab
from whichtorch.matrix.options import RunOptions
from whichtorch.matrix.planning import plan
from whichtorch.matrix.site import ThisMachine
from whichtorch.model import Cell, Config, Environment, Outcome, Request, digest
from whichtorch.process import kernel, sandbox
from whichtorch.process.evidence.capture import NOT_PERMITTED
from whichtorch.process.evidence.facts import PRELOADED, openmp_runtimes
from whichtorch.process.executor import MEMORY_PER_JOB_MB
from whichtorch.process.spawning import QUIET, find_tool
from whichtorch.records.line_index import Records
from whichtorch.suite import selection
from whichtorch.watch.process_report import REMEDY

if TYPE_CHECKING:
    from whichtorch.model.events import Show

ROOM_MB = 10_000  # of disk: two environments of today's torch
PATIENCE = 20.0  # seconds for a tool's answer: py-spy reads the symbols of the interpreter first
SYS_PTRACE = 19  # bit of CapEff
FILTERED = b"2"  # SECCOMP_MODE_FILTER
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
COLLECTORS_NEEDED = {
    "py-spy": "stacks of hung processes, and to tell slow from stuck",
    "pystack": "who holds the GIL, and who waits for it",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

FAMILY = "control/*"
START_PATIENCE = 30.0  # seconds for an interpreter to print its version
AT_ONCE = 6  # controls: most of them wait, and none imports torch
KINDS = {"control/deadlock": "lock cycle", "control/gil_deadlock": "GIL cycle"}  # of hang, as they must be diagnosed


class CheckState(StrEnum):
    """The result of a check."""

    GOOD = "good"
    PROBLEM = "PROBLEM"
    INFORMATION = "info"  # all commands work, whatever it says


@dataclass(frozen=True, slots=True)
class Check:
    """A thing that was checked."""

    name: str
    state: CheckState
    found: str
    remedy: str = ""  # of a problem


def check_up(home: Path, python: Path) -> Iterator[Check]:
    """Yield every check, as soon as it is done; `python` is asked which OpenMP runtimes torch loads there."""
    platform = f"{sys.platform} with /proc" if kernel.HAS_PROC else None
    without = f"{sys.platform} without /proc: processes cannot be watched"
    yield _needed("platform", platform, without, "run it on Linux, or in a Linux container")
    yield _uv()
    yield _compiler()
    for name, use in COLLECTORS_NEEDED.items():
        yield _needed(name, _version(find_tool(name)), f"not there: {use}", f"pip install {name}")
    yield ptrace_check()
    problem = sandbox.why_not()
    yield _needed("sandbox", None if problem else "bubblewrap works", problem, sandbox.remedy())
    yield _information("gdb", find_tool("gdb"), "only asked where the others fail")
    yield _information("cgroup", _cgroup(), "memory limit of this container, if any")
    yield _information("Chromium", next(filter(None, map(shutil.which, BROWSERS)), None), "only tests need it")
    yield _index()
    pytorch = build_named("cpu", {}).index_url
    if pytorch is not None:
        answer = "answers" if answers(pytorch) else "gives no answer: builds cpu, cu… and nightlies cannot be had"
        yield _information("PyTorch index", f"{without_credentials(pytorch)} {answer}", "for builds but pypi")
    yield openmp_check(python)
    yield _disk(home)
    yield _memory()


def _information(name: str, found: str | None, use: str) -> Check:
    return Check(name, CheckState.INFORMATION, f"{found or 'not there'} ({use})")


def _needed(name: str, found: str | None, problem: str, remedy: str) -> Check:
    """Return the check of what a command needs: what was found, or the problem with its remedy."""
    return Check(name, CheckState.GOOD, found) if found else Check(name, CheckState.PROBLEM, problem, remedy)


def _uv() -> Check:
    try:
        path = uv_path()
    except InstallError as error:
        return Check("uv", CheckState.PROBLEM, error.reason, "pip install uv")
    version = _version(path)
    return _needed("uv", version and f"{version}, {path}", f"{path} does not run", "pip install -U uv")


def _compiler() -> Check:
    wanted = os.environ.get("CXX") or "g++"
    path = shutil.which(wanted) or shutil.which("clang++")
    missing = f"neither {wanted} nor clang++ is there: inductor and scenarios with C++ sources are skipped"
    return _needed("C++ compiler", _version(path), missing, "apt-get install g++, or set CXX")


def ptrace_check() -> Check:
    """Check whether py-spy can read a process that is not its descendant, as a hung process is not."""
    py_spy = find_tool("py-spy")
    if py_spy is None:
        return Check("ptrace", CheckState.PROBLEM, "not tried, because py-spy is missing", "pip install py-spy")
    child = subprocess.Popen([sys.executable, "-I", "-c", "print(flush=True); input()"], stdin=-1, stdout=-1)
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()  # it has started
        dump = _run((py_spy, "dump", "--pid", str(child.pid)))
    finally:
        child.kill()
        child.communicate()
    if dump is not None and dump.returncode == 0 and "Thread" in dump.stdout:
        return Check("ptrace", CheckState.GOOD, f"py-spy reads another process ({_privileges()})")
    lines = (dump.stderr or dump.stdout).strip().splitlines() if dump is not None else []
    cause = next((line for line in lines if "permi" in line.lower()), next(iter(lines), "no answer"))
    words = cause.strip().lstrip("0123456789: ")  # py-spy numbers a chain of causes
    found = f"py-spy cannot read another process: {words} ({_privileges()})"
    return Check("ptrace", CheckState.PROBLEM, found, REMEDY)


def openmp_check(python: Path) -> Check:
    """Check whether `import torch` loads OpenMP runtimes of two makers, which can deadlock."""
    program = "import sys; del sys.path[0]; import torch; print(open('/proc/self/maps').read())"
    asked = _run((str(python), "-c", program))
    if asked is None or asked.returncode:
        return _information("OpenMP", "not known", f"`import torch` fails or takes long in {python}; see --interpreter")
    loaded = tuple(openmp_runtimes(line.encode() for line in asked.stdout.splitlines()))
    found = " and ".join(loaded) or "none loaded"
    if PRELOADED.search(os.environb.get(b"LD_PRELOAD", b"")) or not Process(openmp=loaded).has_two_openmps:
        return Check("OpenMP", CheckState.GOOD, found)
    remedy = "install torch and the other packages that use OpenMP all by pip, or all by conda"
    return Check("OpenMP", CheckState.PROBLEM, f"`import torch` loads runtimes of two makers, {found}", remedy)


def _privileges() -> str:
    """Return what the kernel allows: yama's scope, whether CAP_SYS_PTRACE is held, whether a seccomp filter is set."""
    scope = "no yama"
    with suppress(OSError):
        scope = f"yama scope {YAMA.read_text(encoding='ascii').strip()}"
    if capabilities := kernel.field("/proc/self/status", b"CapEff:"):
        held = "held" if int(capabilities, 16) >> SYS_PTRACE & 1 else "not held"
        filtered = ", a seccomp filter" if kernel.field("/proc/self/status", b"Seccomp:") == FILTERED else ""
        return f"{scope}, CAP_SYS_PTRACE {held}{filtered}"
    return scope


def _cgroup() -> str | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError):
            limit = Path(path).read_text(encoding="ascii").strip()
            is_limited = limit.isdigit() and int(limit) < psutil.virtual_memory().total
            return f"{int(limit) // 2**20} MiB" if is_limited else "no limit"
    return None


def _index() -> Check:
    url = configured_sources().index_url
    if url is None:
        return Check("index", CheckState.PROBLEM, "none is configured", "set UV_DEFAULT_INDEX or PIP_INDEX_URL")
    shown = without_credentials(url)
    remedy = "check network and proxy, or name a mirror: UV_DEFAULT_INDEX=https://…"
    return _needed("index", shown if answers(url) else None, f"no answer from {shown}", remedy)


def _disk(home: Path) -> Check:
    folder = next(folder for folder in (home, *home.parents) if folder.exists())
    if not os.access(folder, os.W_OK):
        remedy = "set WHICHTORCH_HOME to a folder of your own"
        return Check("disk", CheckState.PROBLEM, f"{folder} may not be written to", remedy)
    free = shutil.disk_usage(folder).free / 1e6
    found = f"{free / 1000:.0f} GB free at {folder}" if free >= ROOM_MB else None
    problem = f"{free / 1000:.1f} GB free at {folder}, {ROOM_MB // 1000} wanted"
    return _needed("disk", found, problem, "free some, or set WHICHTORCH_HOME to a folder on a larger disk")


def _memory() -> Check:
    available = psutil.virtual_memory().available / 2**20
    found = f"{available:.0f} MiB available"
    problem = f"{found}, {MEMORY_PER_JOB_MB} wanted"
    remedy = "end what uses it; a compiling torch takes that much"
    return _needed("memory", found if available >= MEMORY_PER_JOB_MB else None, problem, remedy)


def _version(path: str | None) -> str | None:
    """Return the version that a program prints in a line; None where it is missing or fails."""
    ended = _run((path, "--version")) if path else None
    lines = ended.stdout.strip().splitlines() if ended is not None and ended.returncode == 0 else []
    return lines[0] if lines else None


def _run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str] | None:
    with suppress(OSError, subprocess.TimeoutExpired):
        environ = os.environ | QUIET
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return None


class BareInterpreter:
    """One Python, with or without torch, as the only environment: no install, no probe, no canary."""

    def __init__(self, home: Path, interpreter: Path, version: str) -> None:
        self.home, self.interpreter, self.version = home, interpreter, version
        self.request = existing(interpreter, Config(name="default"))

    def known(self, request: Request) -> Environment:
        """Return the environment."""
        return Environment(
            id=digest(["bare", str(self.interpreter), self.version]),
            label=request.label,
            torch="none",
            python=self.version,
            build=request.build.name,
            config=request.config.name,
            interpreter=self.interpreter,
            options=request.options,
        )

    def is_installed(self, request: Request) -> bool:
        """Return True for the interpreter."""
        return request == self.request

    def typical_install(self) -> float:
        """Return 0: nothing is ever installed."""
        return 0.0

    def unreachable_index(self, request: Request) -> None:
        """Return None: no index is needed."""

    def acquire(self, request: Request, *_: object, **__: object) -> Environment:
        """Return the environment."""
        return self.known(request)

    def release(self, request: Request) -> None:
        """Do nothing: the interpreter stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The cell of a control, and the outcome it should have."""

    cell: Cell
    own: Outcome

    @property
    def kind(self) -> str | None:
        """The kind of hang that its stacks show; None where it did not hang."""
        diagnosis = self.cell.diagnosis if self.cell.outcome is Outcome.HANG else None
        return diagnosis.kind if diagnosis else None

    @property
    def problem(self) -> str | None:
        """What is wrong with it; None where nothing is."""
        if self.cell.outcome is Outcome.SKIP:
            return None  # it says that it does not apply to this Python
        if self.cell.outcome is not self.own:
            reason = self.cell.reason or self.cell.signature or "no reason known"
            return f"{self.cell.outcome}, not {self.own}: {reason}"
        kind = KINDS.get(self.cell.scenario)
        if kind and self.kind != kind:
            why = ", for want of permission to read stacks" if self._is_refused else ""
            return f"explained as {self.kind or 'nothing'}, not as {kind}{why}"
        return None

    @property
    def remedy(self) -> str:
        """What to do about a problem."""
        if self._is_refused:
            return "see ptrace"
        log = self.cell.attempts[-1].stderr if self.cell.attempts else "none"
        return f"look at {log} in the state folder; a busy machine may need another try"

    @property
    def _is_refused(self) -> bool:
        return any(NOT_PERMITTED in attempt.note for attempt in self.cell.attempts)


def run_controls(
    home: Path, interpreter: Path, jobs: int | None, show: Show, globs: tuple[str, ...] = (FAMILY,)
) -> Iterator[Control]:
    """Run the controls that `globs` selects with an interpreter, through the same pipeline as any cell; yield each.

    By default AT_ONCE run at once. No stored record counts. Raises UsageError where the interpreter does not run.
    """
    bare = BareInterpreter(home, interpreter, _version_of(interpreter))
    planned = plan([bare.request], selection.select(selection.suite(), globs), RunOptions(fresh=True))
    with opened_lab(ThisMachine(environments=bare, jobs=jobs or AT_ONCE), Records(), show) as run:
        _, cells = run(planned)
    axes = bare.request.axes | {"torch": "0", "python": bare.version}
    for control, cell in zip(planned, cells, strict=True):
        line = selection.expected(control.scenario, control.variant, axes)
        yield Control(cell=cell, own=line.outcome if line else Outcome.PASS)


def _version_of(interpreter: Path) -> str:
    argv = [str(interpreter), "-I", "-c", "import platform; print(platform.python_version())"]
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=START_PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"{interpreter} does not run as a Python: {error}") from None
    return ended.stdout.strip()


def control_lines(controls: list[Control]) -> Iterator[str]:
    """Yield a line for each control, and a line with the remedy for each problem."""
    width = max((len(control.cell.name) for control in controls), default=0)
    for control in controls:
        cell = control.cell
        state = "PROBLEM" if control.problem else "good"
        kind = f", {control.kind}" if control.kind else ""
        what = control.problem or f"{cell.outcome}{kind}, {cell.seconds:.1f} s"
        yield f"{state:<8} {cell.name:<{width}}  {what}"
        if control.problem:
            yield f"{'':<8} remedy: {control.remedy}"
