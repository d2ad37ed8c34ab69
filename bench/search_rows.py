"""How many probes, runs and installs a search takes, by simulation, beside what other tools take; and one real search.

The peers' figures were measured with simulations of the same histories. Probes count the bounds; where the
failure is flaky, installs are counted without the two bounds, as the peers take those as given, and runs with them.
"""

import math
import statistics
import time
from functools import partial
from pathlib import Path
from random import Random

from bench.row import BenchRow, Figure
from tests.bisect.history import History, Trace, follow
from tests.cli.shell import FAILS_IN_OLD, new_user
from tests.wheels import build_companion, build_wheel, serve
from whichtorch.search.search_state import AnswerKind, Costs, Purpose, SearchOptions

SIZE = 128
RELEASES = 30  # of the search with real processes
BLOCK = 32
TRIALS = 200
CALIBRATION_SIZE = 16
CALIBRATION_TRIALS = 800  # of which 480 have a culprit: the standard error at 0.9 is 1.4 points
INSTALL, GOOD, BAD = 25.0, 5.0, 20.0  # seconds: a warm index, a script that imports torch, a hang's timeout
PEERS = {  # failure rate -> accuracy, runs, installs
    0.9: "bayesect 1.00 / 19 / 10.7, one-sided 1.00 / 32 / 7.2",
    0.5: "bayesect .965 / 55 / 22.5, one-sided .965 / 44 / 7.2",
    0.3: "bayesect .975 / 99 / 32.3, one-sided .94 / 77 / 7.3",
}
TARGETS = {0.9: (0.98, 35), 0.5: (0.965, 45), 0.3: (0.95, 80)}


def _costs(size: int) -> Costs:
    return Costs(install=(INSTALL,) * size, good=GOOD, bad=BAD)


def _search_probes(trace: Trace) -> list[int]:
    return [probe.position for probe in trace.probes if probe.purpose is not Purpose.CONFIRM]


def clean(folder: Path) -> Figure:
    """Search for every culprit of a history without holes or flakes."""
    parts, met = [], True
    for size in (30, 64, 128, 1024):
        counts = []
        for culprit in range(1, size):
            trace = follow(History.regression(size, culprit))
            probes = _search_probes(trace)
            counts.append(len(probes))
            met &= trace.culprit == culprit and len(set(probes)) == len(probes)
        met &= max(counts) <= math.ceil(math.log2(size)) + 2
        parts.append(f"n={size}: {statistics.mean(counts):.1f}, {max(counts)}")
    return Figure(text="; ".join(parts) + " (peers, n=30: 6.9, 8)", met=met)


def block(folder: Path) -> Figure:
    """Put a block of 32 untestable versions at every third place among 128, with every third culprit."""
    counts, inside = [], True
    for first in range(1, SIZE - BLOCK, 3):
        for culprit in range(1, SIZE, 3):
            trace = follow(History.regression(SIZE, culprit, untestable=range(first, first + BLOCK)))
            counts.append(len(_search_probes(trace)))
            (boundary,) = trace.answer.boundaries
            inside &= boundary.before < culprit <= boundary.after
    mean, most = statistics.mean(counts), max(counts)
    text = f"{mean:.1f}, {most} (git 21.7, 42; mozregression 23.2, 41; cargo 29.1, 44)"
    return Figure(text=text + ("" if inside else "; a culprit was OUTSIDE"), met=inside and mean <= 14.7 and most <= 21)


def hang_rate(folder: Path, *, rate: float) -> Figure:
    """Search 200 histories of 128 versions in which bad ones fail at a rate."""
    traces = []
    right = 0
    for trial in range(TRIALS):
        random = Random(trial)
        culprit = random.randrange(1, SIZE)
        history = History.regression(SIZE, culprit, rate=rate)
        trace = follow(history, SearchOptions(flaky=True), costs=_costs(SIZE), random=random)
        right += trace.culprit == culprit
        traces.append(trace)
    accuracy = right / TRIALS
    runs = statistics.mean(trace.runs for trace in traces)
    installs = statistics.mean(trace.positions for trace in traces) - 2
    needed, most = TARGETS[rate]
    text = f"{accuracy:.3f} / {runs:.1f} / {installs:.2f} ({PEERS[rate]})"
    return Figure(text=text, met=accuracy >= needed and runs <= most and installs <= 7.5)


def no_culprit(folder: Path) -> Figure:
    """Search where nothing fails, and where everything does half of the time."""
    parts, met = [], True
    for name, rate in (("nothing fails", 0.0), ("all fail at .5", 0.5)):
        for flaky in (False, True):
            blamed = 0
            for trial in range(TRIALS):
                history = History(size=SIZE, bad=range(SIZE), rate=rate)
                trace = follow(history, SearchOptions(flaky=flaky), costs=_costs(SIZE), random=Random(trial))
                blamed += trace.answer.kind is AnswerKind.BOUNDARY
            met &= blamed <= 0.05 * TRIALS
            parts.append(f"{name}{', --flaky' if flaky else ''}: {blamed / TRIALS:.1%}")
    return Figure(text="; ".join(parts), met=met)


def calibration(folder: Path) -> Figure:
    """Compare what the answers claim with how often they are right.

    Two of five histories have no culprit (FACF), and failure rates are drawn from .05 to 1.
    """
    parts, met = [], True
    for confidence in (0.8, 0.9, 0.95, 0.99):
        claims, rights = [], []
        for trial in range(CALIBRATION_TRIALS):
            random = Random(trial)
            culprit = random.randrange(1, CALIBRATION_SIZE)
            rate = random.uniform(0.05, 1)
            bad = random.choice([range(CALIBRATION_SIZE), range(0), *[range(culprit, CALIBRATION_SIZE)] * 3])
            history = History(size=CALIBRATION_SIZE, bad=bad, rate=rate)
            options = SearchOptions(flaky=True, confidence=confidence)
            trace = follow(history, options, costs=_costs(CALIBRATION_SIZE), random=random)
            if trace.answer.kind is AnswerKind.BOUNDARY:
                claims.append(trace.answer.boundaries[0].confidence)
                rights.append(len(bad) == CALIBRATION_SIZE - culprit and trace.culprit == culprit)
        claimed, measured = statistics.mean(claims), statistics.mean(rights)
        met &= abs(claimed - measured) <= 0.03 and min(claims) >= confidence
        parts.append(f"{confidence}: {claimed:.3f} claimed, {measured:.3f} right")
    return Figure(text="; ".join(parts), met=met)


def installed(folder: Path) -> Figure:
    """Bisect a script of a second over stand-in releases, all installed before; the tool's own time counts, too."""
    wheels = folder / "wheels"
    build_companion(wheels, "numpy", "2.2.0")
    for minor in range(RELEASES):
        build_wheel(wheels, f"9.{minor}.0", behaviour="old" if minor < RELEASES // 3 else "new")
    with serve(wheels) as index:
        user = new_user(folder, index)
        user.script("fails.py", "import time\ntime.sleep(1)\n" + FAILS_IN_OLD)
        user.script("passes.py", "import torch\n")
        versions = ",".join(f"9.{minor}.0" for minor in range(RELEASES))
        asked = ("--build", "pypi", "--torch", versions)
        user.run("matrix", "passes.py", *asked)
        since = time.monotonic()
        ended = user.run("bisect", "fails.py", *asked)
        seconds = time.monotonic() - since
    is_found = f"fixed in 9.{RELEASES // 3}.0" in ended.stdout
    return Figure(text=f"{seconds:.1f} s", met=is_found and seconds <= 25.0)


ROWS = [
    BenchRow(
        name="search-clean",
        what="probes, bounds included, every culprit: mean, max",
        target="<= ceil(log2 n) + 2, none repeated",
        measure=clean,
    ),
    BenchRow(
        name="search-block",
        what="probes with an untestable block of 32 in 128: mean, max",
        target="<= 14.7, <= 21, culprit inside",
        measure=block,
    ),
    *(
        BenchRow(
            name=f"search-rate-{rate}",
            what=f"failures show at rate {rate}, n=128: accuracy / runs / installs",
            target=f">= {TARGETS[rate][0]} / <= {TARGETS[rate][1]} / <= 7.5",
            measure=partial(hang_rate, rate=rate),
        )
        for rate in PEERS
    ),
    BenchRow(
        name="search-none", what="a culprit named where there is none, n=128", target="<= 5 %", measure=no_culprit
    ),
    BenchRow(
        name="search-calibration",
        what="confidence asked for: claimed and measured, n=16",
        target="within 3 points",
        measure=calibration,
    ),
    BenchRow(
        name="search-installed",
        what=f"a script of 1 s, bisected over {RELEASES} installed releases",
        target="<= 25 s",
        measure=installed,
    ),
]
