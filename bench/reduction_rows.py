"""How far padded scripts are cut down, and what each rule of the reducer is worth to that.

The scripts fail in a stand-in for torch, in this process, so that a question takes milliseconds. A candidate fails in
the same way where the exception is the same, whatever its numbers, and comes from the same function of the stand-in.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench import standin_torch
from bench.row import BenchRow, Figure
from tests.triage.minimise.failures import SCRIPT, traced
from whichtorch.matrix.search.driving import drive
from whichtorch.matrix.search.runs_oracle import asking
from whichtorch.matrix.triage.minimise.reduction import Reduction, reduced
from whichtorch.matrix.triage.minimise.schedule import RULES

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted([*ROOT.glob("bench/programs/padded/*.py"), *ROOT.glob("tests/triage/minimise/scripts/*.py")])
CPU_SECONDS = 0.3  # for a candidate: some never end
LEAST_WORTH = 2  # lines that a rule leaves out of at least one script


class LateError(BaseException):
    """A candidate has used up its time; no script may catch it."""


def reductions(omitted: Collection[str] = ()) -> dict[str, Reduction]:
    """Reduce each script, without some rules."""
    sys.modules.update(standin_torch.modules())
    signal.signal(signal.SIGVTALRM, _stop)
    found = {}
    for path in SCRIPTS:
        source = path.read_text(encoding="utf-8")
        expected = failure(source)
        assert expected, path
        search = reduced(source, *traced(source), omitted=omitted)
        oracle = asking(lambda candidate, expected=expected: failure(candidate) == expected)  # type: ignore[misc]
        found[path.stem] = drive(search, oracle)
    return found


def failure(source: str) -> str:
    """Run a source; return how it failed, "" where it did not, or not in time."""
    sink = io.StringIO()
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
        try:
            exec(compile(source, SCRIPT, "exec"), {"__name__": "__main__"})  # noqa: S102 - that is what an oracle does
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is
            return re.sub(r"\d+", "N", f"{type(error).__name__}: {error}, {_raising(error)}")
        except LateError:
            return ""
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return ""


def _stop(*_: object) -> None:
    raise LateError


def _raising(error: BaseException) -> str:
    """Return the function of the stand-in that was called by the script, "" where none was."""
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code.co_filename == standin_torch.__file__:
            return place.tb_frame.f_code.co_name
        place = place.tb_next
    return ""


def scripts(folder: Path) -> Figure:
    """Reduce all scripts with all rules."""
    found = reductions().values()
    lines, before = sum(each.lines for each in found), sum(each.lines_before for each in found)
    questions = sum(each.questions for each in found)
    text = f"{lines} of {before} lines of {len(found)} scripts, {questions} questions"
    return Figure(text=text, met=lines <= before / 5)


def rules(folder: Path) -> Figure:
    """Reduce all scripts without each rule in turn."""
    names = sorted(rule.__name__ for rule in RULES)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        whole, *without = pool.map(reductions, [(), *((name,) for name in names)])
    worths = {
        name: {script: each.lines - whole[script].lines for script, each in found.items()}
        for name, found in zip(names, without, strict=True)
    }
    idle = [name for name, worth in worths.items() if max(worth.values()) < LEAST_WORTH]
    text = ", ".join(f"{name} {sum(worth.values())} ({max(worth.values())})" for name, worth in worths.items())
    return Figure(text=text, met=not idle)


ROWS = [
    BenchRow(
        name="reduce-scripts", what="padded scripts, cut down", target="<= a fifth of their lines", measure=scripts
    ),
    BenchRow(
        name="reduce-rules",
        what="lines more in all padded scripts (in one) without a rule of the reducer",
        target=f">= {LEAST_WORTH} in one, each rule",
        measure=rules,
        group="rules",
    ),
]
