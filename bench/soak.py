"""Thousands of attempts while faults strike: nothing is lost, run twice, left behind or wrong; the tool stays small.

The scripts pass, fail, crash, hang, write a lot or start children, in two stand-in releases. Of the attempts of a cell,
one may be forked, and the others are cold. Every twenty seconds on average a fault strikes. Where it ends the tool, the
same command is given again, as a user would. At the end it is given once more without faults. What it finds then is
compared with what one script of each kind does undisturbed. A second part has no faults, so that one tool lives long
enough to show whether it grows. In a third, two tools use one state folder by two paths, on a disk that holds one
environment: each evicts what the other has made, while scripts run that import late.
"""

import itertools
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from bench.faults.death import ROLES, kill_one
from bench.faults.disk import ROOMY, mounted, remount
from bench.faults.fault import NotHereError
from bench.faults.ground import (
    LONGEST,
    SAYS_NOTHING,
    SCRIPTS,
    BrokenError,
    Calm,
    Command,
    Ended,
    Fields,
    Ground,
    matrix,
    restore_default_signals,
)
from bench.hangs import crowd
from bench.row import BenchRow, Figure
from tests.cli.shell import old_and_new
from tests.wheels import build_wheel, serve

SEED = 27
LOAD = 8  # busy processes beside it
ATTEMPTS = 10_000
REPEAT = 4  # attempts of a cell, of which the first may be forked
FAULT_EVERY = 20.0  # seconds, on average
LONGEST_PAUSE = 6.0  # seconds that everything stands still
LONGEST_FULL = 3.0  # seconds that the disk is full
SHARES = {"passes.py": 60, "fails.py": 15, "writes.py": 10, "crashes.py": 8, "tree.py": 5, "hangs.py": 2}  # in percent
GROWTH_LIMIT = 1000.0  # bytes of the tool's memory for each attempt
DISK = "size=2g"  # in memory, and filled up now and then
UNDISTURBED = 7000  # attempts without faults, of one tool
LEAST_LIFE = 4000  # attempts that a tool lives through before its growth is measured
WARM_AFTER = 2500  # attempts after its start: by then its caches, of 2,000 questions and 2 MB, are full
SERVERS_DESCRIPTORS = 16  # of the eight fork servers that four jobs may keep: some start late
OPTIONS = ("--repeat", str(REPEAT), "--jobs", "4", "--quiet")
LATE = "import torch\nNOTE\nimport time\ntime.sleep(0.5)\nimport numpy\nassert torch.behaviour == 'new', 'as it was'\n"
TWO_PATHS = 3600.0  # seconds that two tools run side by side
PADDING = 20_000_000  # bytes of a stand-in
ONE_FITS = ("--disk", "30MB")  # and not two
KILLED_ROLES = ("the supervisor", "the fork server", "a script's child")


@dataclass(frozen=True)
class Sample:
    """The tool at a moment."""

    attempts: int  # on record
    memory: int  # bytes, resident
    descriptors: int
    threads: int


@dataclass
class Soak:
    """A run under way."""

    ground: Ground
    command: Command
    dice: random.Random
    tool: subprocess.Popen[bytes] | None = None
    struck: Counter[str] = field(default_factory=Counter)
    lives: list[list[Sample]] = field(default_factory=list)  # of each tool
    seen: set[int] = field(default_factory=set)  # hashes of records that were whole once
    offsets: Counter[Path] = field(default_factory=Counter)  # how far each file of records was read
    attempts: int = 0  # recorded so far
    is_calm: bool = False  # no fault strikes

    def live(self, until: float) -> None:
        """Give the command until it ends by itself; a fault may end it before, and Ctrl-C does `until` a time."""
        due = self._next_fault()
        while True:
            self.tool = tool = self.ground.start(self.command.words)
            self.lives.append([])
            struck_before = sum(self.struck[name] for name in ENDING)
            while tool.poll() is None:
                time.sleep(0.25)
                self._sample()
                if time.monotonic() > until:
                    tool.send_signal(signal.SIGINT)
                    self._check_life(self.ground.ended(tool))
                    return
                if time.monotonic() > due:
                    name = self.dice.choice(list(FAULTS))
                    self.struck[name] += FAULTS[name](self)
                    due = self._next_fault()
            self._check_life(self.ground.ended(tool))
            if sum(self.struck[name] for name in ENDING) == struck_before:
                return

    def _next_fault(self) -> float:
        return float("inf") if self.is_calm else time.monotonic() + self.dice.expovariate(1 / FAULT_EVERY)

    def _sample(self) -> None:
        assert self.tool is not None
        self.count_new_attempts()
        with suppress(psutil.Error):
            process = psutil.Process(self.tool.pid)
            with process.oneshot():
                sample = Sample(self.attempts, process.memory_info().rss, process.num_fds(), process.num_threads())
            self.lives[-1] += [sample] * bool(sample.memory)  # none is left of a process that ends

    def count_new_attempts(self) -> None:
        """Count the attempts that were recorded since the last count."""
        for path in self.ground.state.glob("runs/*/records.jsonl"):
            with path.open("rb") as file:
                file.seek(self.offsets[path])
                new = file.read()
            self.offsets[path] += len(new)
            self.attempts += new.count(b"\n")

    def _check_life(self, ended: Ended) -> None:
        if ended.code != -signal.SIGKILL:
            self.ground.check_line(ended)
        now = {hash(json.dumps(record)) for record in self.ground.records()}
        if lost := self.seen - now:
            raise BrokenError(f"{len(lost)} records are lost")
        self.seen = now


def _kill(words: str, soak: Soak) -> bool:
    return kill_one(words, soak.ground, soak.dice)


def _end_tool(number: signal.Signals, soak: Soak) -> bool:
    assert soak.tool is not None
    soak.tool.send_signal(number)
    soak.tool.wait(LONGEST)
    return True


def _kill_and_tear(soak: Soak) -> bool:
    """Kill the tool, and leave half a record behind, as a machine that loses its power does."""
    _end_tool(signal.SIGKILL, soak)
    soak.ground.wait_until_quiet()
    file = max(soak.ground.state.glob("runs/*/records.jsonl"), key=lambda path: path.stat().st_mtime)
    lines = file.read_bytes().splitlines(keepends=True)
    with file.open("ab") as records:
        records.write(lines[-1][: soak.dice.randrange(1, len(lines[-1]))] if lines else b"{")
    return True


def _pause(soak: Soak) -> bool:
    """Let everything stand still, as a laptop does that sleeps."""
    paused = soak.ground.processes()
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in paused:
            with suppress(psutil.Error):
                process.send_signal(number)
        if number is signal.SIGSTOP:
            time.sleep(soak.dice.uniform(1.0, LONGEST_PAUSE))
    return True


def _fill(soak: Soak) -> bool:
    """Fill the disk of the state folder for a while."""
    if not soak.ground.state.is_mount():
        return False
    filler = soak.ground.state / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 20)):
            pass
    time.sleep(soak.dice.uniform(0.5, LONGEST_FULL))
    filler.unlink(missing_ok=True)
    return True


def _read_beside(soak: Soak) -> bool:
    """Give another command on the same state folder."""
    words = soak.ground.user.command(*soak.dice.choice((("runs",), ("report",), ("history", "passes-0.py"))))
    ended = subprocess.run(
        words,
        cwd=soak.ground.user.folder,
        env=soak.ground.user.environ,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    soak.ground.check_line(Ended(ended.returncode, ended.stdout + ended.stderr))
    return True


ENDING: dict[str, Callable[[Soak], bool]] = {  # faults that may end the tool: the same command is given again
    "kill -9 of the tool": partial(_end_tool, signal.SIGKILL),
    "Ctrl-C": partial(_end_tool, signal.SIGINT),
    "kill -9 of the tool, a torn record": _kill_and_tear,
    "full disk": _fill,
}
FAULTS: dict[str, Callable[[Soak], bool]] = {
    **ENDING,
    **{f"kill -9 of {name}": partial(_kill, ROLES[name]) for name in KILLED_ROLES},
    "everything stands still": _pause,
    "another command": _read_beside,
}


def soak(attempts: int, seconds: float | None, seed: int, folder: Path) -> Figure:
    """Run so many attempts, or for so long, and say what became of them."""
    restore_default_signals()
    with serve(old_and_new(folder / "wheels")) as index, ExitStack() as held:
        fields = Fields(folder, index, seed)
        calm = fields.calm(matrix(*SHARES, more=OPTIONS))
        ground = fields.ground()
        scripts = list(_scripts(ground, max(1, attempts // (2 * REPEAT))))
        with suppress(NotHereError):
            held.enter_context(mounted(ground.state, ROOMY))
            ground.give(matrix(scripts[0], more=OPTIONS).words)  # an install wants more room than stand-ins take
            remount(ground.state, DISK)
        held.callback(ground.clear)
        run = Soak(ground, matrix(*scripts, more=OPTIONS), random.Random(seed))
        since = time.monotonic()
        until = float("inf") if seconds is None else since + seconds
        problems: list[str] = []
        try:
            with crowd(LOAD):
                run.live(until)
                ground.wait_until_quiet()
                if seconds is None:
                    ground.check_line(ground.give(run.command.words), calm.code)
                else:  # a command, if a short one, so that what a killed tool has left is removed
                    ground.check_line(ground.give(matrix(scripts[0], more=OPTIONS).words))
        except BrokenError as broken:  # the soak stops at the first broken promise
            problems.append(str(broken))
            ground.clear()
        is_whole = seconds is None and not problems
        problems += [*_problems(ground, calm, scripts, is_whole=is_whole), *_growth(run.lives)]
        run.count_new_attempts()
        forked = sum(record["attempt"]["evidence"].get("start", "cold") != "cold" for record in ground.records())
        print(*problems, f"seed {seed}: {dict(run.struck)}", sep="\n", file=sys.stderr)
        text = (
            f"{run.attempts} attempts, {forked} forked, {sum(run.struck.values())} faults, "
            f"{time.monotonic() - since:.0f} s; {_size_text(run.lives)}; {_state_text(ground, run.attempts)}; "
            f"{len(problems)} broken"
        )
    return Figure(text=text, met=not problems)


def growth(attempts: int, seed: int, folder: Path) -> Figure:
    """Run so many attempts without faults, and say how the tool grows meanwhile."""
    restore_default_signals()
    with serve(old_and_new(folder / "wheels")) as index:
        ground = Fields(folder, index, seed).ground()
        scripts = list(_scripts(ground, attempts // (2 * REPEAT)))
        run = Soak(ground, matrix(*scripts, more=OPTIONS), random.Random(seed), is_calm=True)
        try:
            run.live(float("inf"))
        finally:
            ground.clear()
        run.count_new_attempts()
    problems = list(_growth(run.lives))
    print(*problems, sep="\n", file=sys.stderr)
    return Figure(text=f"{run.attempts} attempts; {_size_text(run.lives)}", met=not problems and bool(_long(run.lives)))


def two_paths(seconds: float, seed: int, folder: Path) -> Figure:
    """Run two tools with one state folder, each by its own path to it, and count outcomes that there are not alone."""
    restore_default_signals()
    wheels = old_and_new(folder / "wheels")
    for version, behaviour in (("9.1.0", "old"), ("9.2.0", "new")):
        build_wheel(wheels, version, behaviour=behaviour, padding=PADDING)
    with serve(wheels) as index:
        ground = Fields(folder, index, seed).ground()
        ground.user.script("late.py", LATE)
        scripts = ("late.py", "passes.py", "fails.py")
        ground.check_line(ground.give(matrix(*scripts).words))
        alone = {(each["environment"], each["scenario"], each["attempt"]["outcome"]) for each in ground.records()}
        (ground.user.folder / "link").symlink_to(ground.state)
        for file in ground.state.glob("envs/*/complete"):
            file.unlink()  # both are known, and only one of them fits from here on
        until, installs, problems = time.monotonic() + seconds, set[tuple[Path, int]](), list[str]()

        def use(path: Path) -> None:
            dice = random.Random(f"{seed} {path.name}")
            while time.monotonic() < until and not problems:
                releases = dice.sample(("9.1.0", "9.2.0"), dice.choice((1, 1, 2)))
                words = matrix(*scripts, torch=",".join(releases), more=(*ONE_FITS, "--fresh")).words
                environ = ground.user.environ | {"WHICHTORCH_HOME": str(path)}
                ended = subprocess.run(
                    ground.user.command(*(word.replace("result.json", f"{path.name}.json") for word in words)),
                    cwd=ground.user.folder,
                    env=environ,
                    capture_output=True,
                    text=True,
                    timeout=LONGEST,
                    check=False,
                )
                if ended.returncode not in {0, 1}:
                    problems.append(f"exit code {ended.returncode}: {ended.stdout + ended.stderr}"[-2000:])

        paths = (ground.state, ground.user.folder / "link")
        with ThreadPoolExecutor(len(paths)) as pool:
            tools = [pool.submit(use, path) for path in paths]
            while not all(tool.done() for tool in tools):
                found = ground.state.glob("envs/*/complete")
                with suppress(FileNotFoundError):
                    installs |= {(file, file.stat().st_mtime_ns) for file in found}
                time.sleep(0.05)
            for tool in tools:
                tool.result()
        made = [(each["environment"], each["scenario"], each["attempt"]["outcome"]) for each in ground.records()]
        others = Counter(each for each in made if each not in alone)
        ground.wait_until_quiet()
        print(*problems, *others.items(), sep="\n", file=sys.stderr)
    text = f"{len(made)} attempts, {len(installs)} installs, {others.total()} with another outcome than alone"
    return Figure(text=text, met=not (others or problems))


def _scripts(ground: Ground, count: int) -> Iterator[str]:
    """Write scripts of each kind by its share."""
    kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
    for number in range(count):
        kind = kinds[number * 37 % len(kinds)]  # all kinds from the beginning on
        yield ground.user.script(f"{Path(kind).stem}-{number}.py", SCRIPTS[kind])


def _problems(ground: Ground, calm: Calm, scripts: list[str], *, is_whole: bool) -> Iterator[str]:
    """Yield each promise that is not kept."""
    counts: Counter[tuple[str, str]] = Counter()  # of verdicts
    made: Counter[tuple[str, str]] = Counter()  # of attempts that are not made again
    for record in ground.records():
        kind = record["scenario"].partition("-")[0] + ".py"
        outcome = record["attempt"]["outcome"]
        counts[record["environment"], record["scenario"]] += outcome not in SAYS_NOTHING
        made[record["environment"], record["scenario"]] += outcome != "error"
        if outcome not in {*SAYS_NOTHING, *calm.outcomes[kind]}:
            yield f"wrong: {record['scenario']} is {outcome}"
    environments = {environment for environment, _ in calm.counts}
    for environment, scenario in itertools.product(environments, scripts):
        count = counts[environment, scenario]
        expected = calm.counts[environment, scenario.partition("-")[0] + ".py"]
        if count > expected:
            yield f"twice: {scenario} has {count} verdicts, not {expected}"
        if is_whole and made[environment, scenario] < REPEAT:
            yield f"lost: {scenario} has {made[environment, scenario]} attempts, not {REPEAT}"
    try:
        ground.check_left(mounted=ground.state.is_mount())
    except BrokenError as error:
        yield str(error)


def _growth(lives: list[list[Sample]]) -> Iterator[str]:
    for samples in _long(lives):
        slope = _slope(samples)
        if slope > GROWTH_LIMIT:
            yield f"the tool grows by {slope:.0f} bytes an attempt"
        for name in ("descriptors", "threads"):
            half = len(samples) // 2
            # the fewest, when few scripts run: a leak adds to these, too
            first, last = (min(getattr(each, name) for each in part) for part in (samples[:half], samples[half:]))
            if last > first + SERVERS_DESCRIPTORS:
                yield f"{name} go from {first} to {last}"


def _long(lives: list[list[Sample]]) -> list[list[Sample]]:
    """Return the samples of tools that lived long enough, without their beginnings and their last reports."""
    warm = [
        [each for each in life if life[0].attempts + WARM_AFTER <= each.attempts < life[-1].attempts]
        for life in lives
        if life
    ]
    return [life for life in warm if life and life[-1].attempts - life[0].attempts >= LEAST_LIFE]


def _slope(samples: list[Sample]) -> float:
    """Return bytes an attempt."""
    return statistics.linear_regression([each.attempts for each in samples], [each.memory for each in samples]).slope


def _size_text(lives: list[list[Sample]]) -> str:
    if not (found := _long(lives)):
        return "no tool lived long enough to measure its growth"
    last = max(found, key=len)
    return f"the tool grows by {_slope(last):.0f} bytes an attempt, to {last[-1].memory >> 20} MB"


def _state_text(ground: Ground, attempts: int) -> str:
    used = sum(path.lstat().st_size for path in (ground.state / "runs").rglob("*") if path.is_file())
    return f"{used / max(1, attempts) / 1000:.1f} kB of runs an attempt"


def rows(seconds: float | None) -> list[BenchRow]:
    """Return the rows of the soak; of one that ends after some seconds, without the undisturbed part."""
    struck = [
        BenchRow(
            name="soak",
            what=f"{ATTEMPTS} attempts beside {LOAD} busy processes, a fault every {FAULT_EVERY:g} s",
            target="nothing lost, twice, left or wrong",
            measure=partial(soak, ATTEMPTS, seconds, SEED),
            group="soak",
        )
    ]
    beside = BenchRow(
        name="two-paths",
        what="two tools on one state folder by two paths, each evicting what the other has made",
        target="0 attempts with other outcomes than alone",
        measure=partial(two_paths, TWO_PATHS if seconds is None else seconds, SEED),
        group="soak",
    )
    undisturbed = BenchRow(
        name="growth",
        what=f"the tool's memory over {UNDISTURBED} attempts without faults",
        target=f"less than {GROWTH_LIMIT:g} bytes an attempt",
        measure=partial(growth, UNDISTURBED, SEED),
        group="soak",
    )
    return [*struck, beside, *([undisturbed] if seconds is None else [])]
