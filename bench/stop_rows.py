"""How fast things stop after a timeout, Ctrl-C or a hang. Tests check only that they stop."""

from __future__ import annotations

import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from bench.row import BenchRow, Figure
from tests.cli.shell import FAILS_IN_OLD, new_user, old_and_new, wait_for
from tests.patience import PATIENCE
from tests.process.running import begin, until
from tests.process.test_hard_timeout import STUBBORN, TIMEOUT, start
from tests.process.test_loop_watch import ENDLESS, supervised
from tests.process.test_stall_programs import WORDS
from tests.wheels import serve
from whichtorch.base.redaction import Redactor
from whichtorch.process.supervisor import RESERVE, RESERVE_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMES = 5  # each is measured; the longest counts
LINE = 5_000_000  # bytes


def longest(measure: Callable[[Path], float], folder: Path, most: float, times: int = TIMES) -> Figure:
    """Return the longest of several measurements, each in a folder of its own."""
    seconds = max(measure(folder / str(number)) for number in range(times))
    return Figure(text=f"longest of {times}: {seconds:.1f} s", met=seconds <= most)


def after_timeout(folder: Path) -> float:
    """Return the seconds after its hard timeout in which a program that ignores SIGTERM has ended."""
    begun = time.monotonic()
    ending = start(folder, STUBBORN).wait()
    assert ending.stopped_by == "timeout"
    return time.monotonic() - begun - TIMEOUT


def after_interrupt(folder: Path) -> float:
    """Return the seconds from an interrupt to the end of a program, long before its stacks would be taken."""
    program = start(folder, STUBBORN, timeout=RESERVE / RESERVE_SHARE)
    assert until(lambda: (folder / "err").exists() and (folder / "err").stat().st_size)
    begun = time.monotonic()
    program.interrupt()
    assert program.wait().stopped_by == "interrupt"
    return time.monotonic() - begun


def after_ctrl_c(command: str, folder: Path) -> float:
    """Return the seconds from Ctrl-C to the end of a command that runs a script without an end."""
    with serve(old_and_new(folder / "wheels")) as index:
        user = new_user(folder, index)
        script = user.script("repro.py", FAILS_IN_OLD + "import time\ntime.sleep(3600)\n")
        options = ("--torch", "9.2.0") if command == "matrix" else ("--torch", "9.1.0,9.2.0")
        process = user.start(command, *options, script)
        wait_for(lambda: user.runs(script) > 0)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        return time.monotonic() - begun


def deadlocks(folder: Path) -> Figure:
    """Start all deadlocks at once, and measure when the last one is detected."""
    names = [name for name in WORDS if name != "stuck_tcp"]  # it needs a peer
    started = {name: begin(folder / name, name, stall=True) for name in names}
    endings = {name: each.wait() for name, each in started.items()}
    seconds = max(ending.seconds for ending in endings.values())
    missed = [name for name, ending in endings.items() if ending.stopped_by != "stall"]
    text = f"longest of {len(names)}: {seconds:.1f} s" + "".join(f"; missed {name}" for name in missed)
    return Figure(text=text, met=seconds <= 20 and not missed)


def endless_loop(folder: Path) -> float:
    """Return the seconds after which a loop whose state repeats is detected."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    ending = supervised(folder, ENDLESS["same_numbers"], is_hard=True).wait()
    assert ending.stopped_by == "stall"
    return ending.seconds


def redact(_folder: Path) -> float:
    """Return the seconds that the patterns of secrets take for a line of 5 MB."""
    redactor = Redactor.of_this_machine()
    begun = time.monotonic()
    redactor.text("token password login authorization bearer sk- /home/x " + "a" * LINE)
    return time.monotonic() - begun


def row(name: str, what: str, measure: Callable[[Path], float], most: float, times: int = TIMES) -> BenchRow:
    """Return the row of something that takes so many seconds at most."""
    return BenchRow(
        name=name, what=what, target=f"<= {most:g} s", measure=lambda folder: longest(measure, folder, most, times)
    )


ROWS = [
    row("stop-timeout", "the end of a program that ignores SIGTERM, after its timeout", after_timeout, 2.0),
    row("stop-interrupt", "the same after an interrupt, long before its timeout", after_interrupt, 2.5),
    row("stop-matrix", "`matrix` after Ctrl-C, with an endless script", partial(after_ctrl_c, "matrix"), 5.0),
    row("stop-bisect", "`bisect` after Ctrl-C, with an endless script", partial(after_ctrl_c, "bisect"), 5.0),
    BenchRow(name="stop-deadlock", what="deadlocks of the tests are detected", target="<= 20 s", measure=deadlocks),
    row("stop-loop", "a loop whose state repeats is detected", endless_loop, 15.0, 2),
    row("redact-line", "secrets looked for in a line of 5 MB", redact, 10.0, 2),
]
