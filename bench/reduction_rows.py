"""How far padded scripts are cut down, and what each rule of the reducer is worth to that.

`python -m bench.reduction_rows RULE...` reduces them without these rules in a process that has torch, so that a
question takes milliseconds. A candidate fails in the same way where the exception is the same, whatever its numbers,
and comes from the same function of torch.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from bench.row import BenchRow, Figure
from tests.triage.minimise.failures import SCRIPT, traced
from whichtorch.matrix.records.store import state_folder
from whichtorch.matrix.search.driving import drive
from whichtorch.matrix.search.runs_oracle import asking
from whichtorch.matrix.triage.minimise.reduction import RULES, Reduction, reduced

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted([*ROOT.glob("bench/programs/padded/*.py"), *ROOT.glob("tests/triage/minimise/scripts/*.py")])
TORCH = "2.11.0"
CPU_SECONDS = 1.0  # for a candidate: some never end
LEAST_WORTH = 2  # lines that a rule leaves out of at least one script


class LateError(BaseException):
    """A candidate has used up its time; no script may catch it."""


def reductions(omitted: Collection[str] = ()) -> dict[str, Reduction]:
    """Reduce each script beside torch, without some rules."""
    command = ["uv", "run", "--quiet", "--no-project", "--python", sys.executable, "--with", f"torch=={TORCH}"]
    command += ["--with-editable", str(ROOT), "python", "-m", "bench.reduction_rows", *omitted]
    environ = dict(os.environ) | {"UV_CACHE_DIR": str(state_folder() / "cache" / "uv")}
    ended = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return {name: Reduction(**fields) for name, fields in json.loads(ended.stdout).items()}


def reduce_here(omitted: Collection[str]) -> dict[str, Reduction]:
    """Reduce each script in this process, without some rules."""
    signal.signal(signal.SIGVTALRM, _stop)
    found = {}
    for path in SCRIPTS:
        source = path.read_text(encoding="utf-8")
        expected = failure(source, seconds=0)  # it may import what torch imports late
        assert expected, path
        search = reduced(source, *traced(source), omitted=omitted)
        oracle = asking(lambda candidate, expected=expected: failure(candidate) == expected)  # type: ignore[misc]
        found[path.stem] = drive(search, oracle)
    return found


def failure(source: str, seconds: float = CPU_SECONDS) -> str:
    """Run a source; return how it failed, "" where it did not, or not in time; 0 seconds are any time."""
    sink = io.StringIO()
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            exec(compile(source, SCRIPT, "exec"), {"__name__": "__main__"})  # noqa: S102 - that is what an oracle does
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is
            said = str(error).partition("\n")[0]  # below it, Dynamo quotes the script
            return re.sub(r"\d+", "N", f"{type(error).__name__}: {said}, {_raising(error)}")
        except LateError:
            return ""
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return ""


def _stop(*_: object) -> None:
    raise LateError


def _raising(error: BaseException) -> str:
    """Return the function of a library that was called by the script, "" where none was."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.name for frame in frames if "site-packages" in frame.filename), "")


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
    with ThreadPoolExecutor(os.cpu_count()) as pool:
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
        name="reduce-scripts",
        what="padded scripts, cut down",
        target="<= a fifth of their lines",
        measure=scripts,
        group="real",
    ),
    BenchRow(
        name="reduce-rules",
        what="lines more in all padded scripts (in one) without a rule of the reducer",
        target=f">= {LEAST_WORTH} in one, each rule",
        measure=rules,
        group="rules",
    ),
]


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        found = reduce_here(sys.argv[1:])
    print(json.dumps({name: asdict(each) for name, each in found.items()}))
