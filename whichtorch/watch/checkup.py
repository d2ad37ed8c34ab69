"""Check what the tool needs of a machine; each problem comes with its remedy."""

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

import psutil

from whichtorch.environments.commander import InstallError, uv_path
from whichtorch.environments.index.sources import answers, build_named, configured_sources, without_credentials
from whichtorch.hangs.stacks import Process
from whichtorch.process import kernel, sandbox
from whichtorch.process.evidence.facts import PRELOADED, openmp_runtimes
from whichtorch.process.executor import MEMORY_PER_JOB_MB
from whichtorch.process.spawning import QUIET, find_tool
from whichtorch.watch.process_report import REMEDY

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
