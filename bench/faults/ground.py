"""Where a fault strikes: a user with a state folder of their own, and what must hold once the fault is over.

What a command finds on undisturbed ground is what it must find after a fault. The user's folder, home and temporary
files lie in one folder, so that whatever is left there, and every process that was started for it, can be seen.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.cli.shell import User, new_user
from tests.wheels import Index
from whichtorch.cli.command import Exit

SCRIPTS = {  # four of them, which is enough, can be forked
    "writes.py": "import torch\nNOTE\nimport tempfile\nfor _ in range(5):\n    print('line' * 10_000)\n"
    "    tempfile.NamedTemporaryFile(delete=False).write(b'.' * 40_000)\n",
    "passes.py": "import torch\nNOTE\n",
    "fails.py": "import torch\nNOTE\nassert torch.behaviour == 'new', 'as it was'\n",
    "hangs.py": "NOTE\nimport threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n",
    "crashes.py": "NOTE\nimport os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "tree.py": "import torch\nNOTE\nimport subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import time; time.sleep(0.5)  # worker'])\n",
}
SAYS_NOTHING = {"error", "slow", "unbuildable", "broken"}  # outcomes that a fault may make
LONGEST = 300.0  # seconds that a command may take
GONE_WITHIN = 20.0  # seconds until nothing of a killed tool may run any more
HALF_MADE = re.compile(r"/\.removed-|\.part(-|$)|/\.trash/.|/attempts/\d+/(tmp|project)(/|$)|/\.[^/]+\.\d+-\d+$")


class BrokenError(Exception):
    """A promise was not kept."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    output: str


@dataclass(frozen=True)
class Command:
    """A command, and the file in which its answer is."""

    words: tuple[str, ...]
    file: str
    facts: Callable[[dict[str, Any]], object]  # of the answer, without what it cost
    prepared_by: tuple[str, ...] = ()  # the words of a command that is given before


def _cells(answer: dict[str, Any]) -> object:
    labels = {each["id"]: each["label"] for each in answer["environments"]}
    return sorted(
        (labels[cell["environment"]], cell["scenario"], cell["outcome"], cell["signature"] or "")
        for cell in answer["cells"]
    )


def _boundaries(answer: dict[str, Any]) -> object:
    return [(each["from"], each["to"], each["change"]) for each in answer["boundaries"]]


def restore_default_signals() -> None:
    """Handle SIGINT and SIGHUP as usual: a background shell and nohup ignore them, and commands would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def matrix(*scripts: str, torch: str = "9.1.0,9.2.0", more: tuple[str, ...] = ()) -> Command:
    """Return the command that runs scripts in some releases."""
    return Command(("matrix", "--torch", torch, *scripts, "--json", "result.json", *more), "result.json", _cells)


ALL = matrix(*SCRIPTS, more=("--jobs", "2"))
SMALL = matrix("passes.py", "fails.py")
COMMANDS = {
    "matrix": ALL,
    "bisect": Command(("bisect", "fails.py", "--build", "pypi", "--json", "answer.json"), "answer.json", _boundaries),
    "fix": Command(
        ("fix", "fails.py", "--bad", "9.1.0", "--good", "9.2.0", "--json", "fix.json"),
        "fix.json",
        lambda answer: answer["fix"]["patch"],
    ),
    "triage": Command(
        ("triage", "fails.py", "--torch", "9.1.0", "--until", "bisect", "--json", "case.json"),
        "case.json",
        lambda answer: (_boundaries(answer["bisection"]), answer["classification"]["category"]),
    ),
    "report": Command(("report",), "output/result.json", _cells, prepared_by=SMALL.words),
    "merge": Command(("merge", "parts"), "result.json", lambda answer: answer, prepared_by=SMALL.words),
}


@dataclass
class Ground:
    """A user's folder with scripts and a state folder."""

    user: User
    index: Index

    @property
    def state(self) -> Path:
        """The state folder."""
        return Path(self.user.environ["WHICHTORCH_HOME"])

    @classmethod
    def new(cls, folder: Path, index: Index) -> Ground:
        """Make it in an empty folder."""
        user = new_user(folder, index)
        for name in ("tmp", "empty"):
            (folder / name).mkdir()
        user.environ |= {"TMPDIR": str(folder / "tmp"), "WHICHTORCH_HOME": str(user.folder / ".whichtorch")}
        for name, source in SCRIPTS.items():
            user.script(name, source)
        return cls(user, index)

    def prepare(self, command: Command) -> None:
        """Give the command that another one needs."""
        if command.prepared_by:
            self.give(command.prepared_by)
            shutil.copytree(self.state / "runs", self.user.folder / "parts", dirs_exist_ok=True)

    def start(self, words: tuple[str, ...], environ: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own; what it says goes to a file."""
        with (self.user.folder.parent / "output.txt").open("wb") as output:
            return subprocess.Popen(
                self.user.command(*words),
                cwd=self.user.folder,
                env=self.user.environ | (environ or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def ended(self, process: subprocess.Popen[bytes]) -> Ended:
        """Wait for the end of what was started."""
        try:
            process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise BrokenError(f"it did not end within {LONGEST:g} s: {self.said()[-500:]}") from None
        return Ended(process.returncode, self.said())

    def said(self) -> str:
        return (self.user.folder.parent / "output.txt").read_text(errors="replace")

    def give(self, words: tuple[str, ...], environ: dict[str, str] | None = None) -> Ended:
        """Give a command and wait for its end."""
        return self.ended(self.start(words, environ))

    def answer(self, command: Command) -> object:
        """Return what a command has found."""
        if command.words[0] == "merge":  # it writes a run; the report of that says what is in it
            self.give(("report", "--json", "result.json"))
            return _cells(json.loads((self.user.folder / command.file).read_text()))
        return command.facts(json.loads((self.user.folder / command.file).read_text()))

    def records(self) -> list[dict[str, Any]]:
        """Return the records that are whole."""
        found = []
        for file in sorted(self.state.glob("runs/*/records.jsonl")):
            for line in file.read_bytes().splitlines():
                with suppress(ValueError, RecursionError):
                    record = json.loads(line)
                    if isinstance(record, dict) and "attempt" in record:
                        found.append(record)
        return found

    def processes(self) -> list[psutil.Process]:
        """Return the living processes that were started for this ground, but for this one."""
        mark = os.fsencode(str(self.user.folder.parent) + "/")
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if mark in Path(f"/proc/{process.pid}/environ").read_bytes():
                    found.append(process)
        return found

    def wait_until_quiet(self) -> None:
        """Wait until nothing of it runs; a promise is broken where something goes on."""
        deadline = time.monotonic() + GONE_WITHIN
        while left := self.processes():
            if time.monotonic() > deadline:
                raise BrokenError(f"left running: {[_described(each) for each in left]}")
            time.sleep(0.1)

    def clear(self) -> None:
        """End whatever still runs here."""
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()

    def remove(self) -> None:
        """Remove it, with everything in it."""
        shutil.rmtree(self.user.folder.parent, ignore_errors=True)

    def check_line(self, ended: Ended, *codes: int) -> None:
        """Check that a command ended with a documented code, and with a line instead of a traceback."""
        known = {int(each) for each in Exit}
        if ended.code not in (codes or known):
            raise BrokenError(f"exit code {ended.code}: {ended.output[-800:]}")
        if "Traceback (most recent call last)" in ended.output:
            raise BrokenError(f"a traceback: {ended.output[-1500:]}")
        if ended.code in {Exit.USAGE, Exit.PREVENTED} and not re.search(
            r"^error: |not as expected|unbuildable|error ", ended.output, re.MULTILINE
        ):
            raise BrokenError(f"exit code {ended.code} without a line that says why: {ended.output[-800:]}")

    def check_verdicts(self, calm: Calm, allowed: Collection[str] = ()) -> None:
        """Check that no record has an outcome that the undisturbed command does not give."""
        for record in self.records():
            outcome = record["attempt"]["outcome"]
            if outcome not in {*SAYS_NOTHING, *calm.outcomes[record["scenario"]], *allowed}:
                raise BrokenError(f"{record['scenario']} is {outcome}: {record['attempt'].get('message')}")

    def check_recovery(
        self, command: Command, calm: Calm, more: tuple[str, ...] = (), *, may_lose: bool = False, mounted: bool = False
    ) -> Ended:
        """Give the command again; check that it finds what it finds undisturbed, and that nothing is left."""
        before = self.records()
        runs = set((self.state / "runs").glob("*/run.json"))
        ended = self.give((*command.words, *more))
        self.check_line(ended)
        if ended.code != calm.code:
            raise BrokenError(f"the next command ends with {ended.code}, not {calm.code}: {ended.output[-1500:]}")
        if (found := self.answer(command)) != calm.answer:
            raise BrokenError(f"the next command finds {found}, not {calm.answer}")
        after = self.records()
        if lost := [record["scenario"] for record in before if record not in after]:
            raise BrokenError(f"lost: {lost}")
        if not may_lose and not runs <= set((self.state / "runs").glob("*/run.json")):
            raise BrokenError("a run is lost")
        if command.words[0] == "matrix" and not more and not may_lose:
            counts = Counter(
                (record["environment"], record["scenario"])
                for record in after
                if record["attempt"]["outcome"] not in SAYS_NOTHING
            )
            if twice := [key for key, count in counts.items() if count > calm.counts[key]]:
                raise BrokenError(f"run twice: {twice}")
        self.wait_until_quiet()
        self.check_left(mounted=mounted)
        return ended

    def check_left(self, *, mounted: bool = False) -> None:
        """Check that the machine is as it was, and that nothing half-made lies in the state folder."""
        own = self.user.folder.parent
        if not mounted and str(own) in (mounts := Path("/proc/self/mounts").read_text()):
            raise BrokenError(f"left mounted: {mounts}")
        outside = [str(path) for name in ("tmp", "empty") for path in (own / name).rglob("*")]
        named = re.compile(rf"(?<!\d){own.name}(?!\d)")  # not a process id that has these digits
        outside += [str(path) for path in Path("/dev/shm").iterdir() if named.search(path.name)]
        if outside:
            raise BrokenError(f"left outside: {outside[:5]}")
        half_made = [str(path) for path in self.state.rglob("*") if HALF_MADE.search(str(path))]
        if half_made:
            raise BrokenError(f"left half-made: {half_made[:5]}")


@dataclass(frozen=True)
class Calm:
    """What a command does undisturbed."""

    code: int
    answer: object
    seconds: float
    outcomes: dict[str, set[str]]  # by script
    counts: Counter[tuple[str, str]]  # records by environment and script


@dataclass
class Fields:
    """Where grounds are made, and what commands do undisturbed, tried once."""

    folder: Path
    index: Index
    seed: int = 0
    _calm: dict[tuple[str, ...], Calm] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _trying: threading.Lock = field(default_factory=threading.Lock)  # what a command does undisturbed
    _made: int = 0

    def ground(self) -> Ground:
        """Return new ground."""
        with self._guard:
            self._made += 1
            folder = self.folder / f"{self._made:04d}"
        folder.mkdir()
        return Ground.new(folder, self.index)

    def calm(self, command: Command) -> Calm:
        """Return what a command does undisturbed."""
        with self._trying:
            if command.words not in self._calm:
                ground = self.ground()
                ground.prepare(command)
                since = time.monotonic()
                ended = ground.give(command.words)
                seconds = time.monotonic() - since
                outcomes: dict[str, set[str]] = {}
                for record in ground.records():
                    outcomes.setdefault(record["scenario"], set()).add(record["attempt"]["outcome"])
                counts = Counter((each["environment"], each["scenario"]) for each in ground.records())
                ground.wait_until_quiet()
                ground.check_left()
                self._calm[command.words] = Calm(ended.code, ground.answer(command), seconds, outcomes, counts)
                ground.remove()
            return self._calm[command.words]


def _described(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:150]}"
    return str(process.pid)
