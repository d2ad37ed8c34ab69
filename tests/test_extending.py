"""What CONTRIBUTING says about adding a thing is true: the files it names are all that it takes."""

import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes import FakeCache
from whichtorch.matrix.cell_scheduler import CellScheduler
from whichtorch.matrix.lab import MatrixRun
from whichtorch.matrix.planning import RunOptions, plan
from whichtorch.matrix.site import LocalSite
from whichtorch.model import Build, Config, Outcome, Request, Scenario
from whichtorch.process.supervision import Ending, Supervised, Task
from whichtorch.records.line_index import Records
from whichtorch.records.store import new_run

ROOT = Path(__file__).parent.parent


def recipe(thing: str) -> set[str]:
    """Return the files that CONTRIBUTING names for adding a thing, NAME standing for its own module."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {thing} \|([^|]*)\|", text, re.MULTILINE)
    assert row, thing
    return set(re.findall(r"`([\w./]+)`", row[1]))


@dataclass
class Copy:
    """A copy of the product to which something is added, and what was changed for it."""

    folder: Path
    changed: set[str] = field(default_factory=set)

    def add(self, path: str, name: str, text: str) -> None:
        """Write a module of the thing's own; the recipe calls it NAME."""
        self.changed.add(path.replace(name, "NAME"))
        (self.folder / path).write_text(text, encoding="utf-8")

    def insert(self, path: str, before: str, text: str) -> None:
        """Put lines before the first place where `before` stands."""
        self.changed.add(path)
        file = self.folder / path
        old = file.read_text(encoding="utf-8")
        assert before in old, path
        file.write_text(old.replace(before, text + before, 1), encoding="utf-8")

    def run(self, code: str, *arguments: str) -> str:
        """Run code, or a command where there are arguments, with the copy for the product; return what it prints."""
        command = ["-m", "whichtorch", *arguments] if arguments else ["-c", code]
        environ = dict(os.environ) | {"PYTHONPATH": str(self.folder), "WHICHTORCH_HOME": str(self.folder / "state")}
        ended = subprocess.run(
            [sys.executable, *command], cwd=self.folder, env=environ, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """Return a copy of what is shipped, and of the documents that belong to it."""
    for name in ("whichtorch", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    for name in ("matrix", "reports", "scenarios"):
        (tmp_path / name).symlink_to(f"whichtorch/{name}")
    return Copy(tmp_path)


def test_an_outcome(copy: Copy) -> None:
    """A new outcome is a row: table, legend, JUnit and page know it."""
    row = '    FLOODED = "flooded", OutcomeRow("W", "under water", _RED, "failure", 5, "blue", "#012, #eef")\n'
    copy.insert("whichtorch/model/outcome.py", "    SKIP = ", row)
    copy.insert("docs/contract.md", "| `skip` | does", "| `flooded` | under water | red |\n")
    printed = copy.run(
        "from whichtorch.model import *\n"
        "from whichtorch.records.store import StoredRun\n"
        "from pathlib import Path\n"
        "from reports import table, junit\n"
        "where = Environment(id='id', label='here', torch='2.0', python='3.11', build='pypi', config='default')\n"
        "cell = Cell(environment='id', scenario='a/b', outcome=Outcome('flooded'), expected=False, seconds=1)\n"
        "result = Result(run=Run(id='run', started='2026-11-21'), environments=(where,), cells=(cell,))\n"
        "print(*table.matrix_lines(result, 80), *table.legend_lines(result), sep='\\n')\n"
        "print(junit.junit_xml(StoredRun(folder=Path(), result=result), 'whichtorch matrix').decode())\n"
    )
    assert "FLOODED!" in printed
    assert "under water" in printed
    assert '<failure type="flooded"' in printed
    assert copy.changed == recipe("an outcome")


def test_a_collector(copy: Copy) -> None:
    """A new collector is a row and a parser: what it leaves in a folder of stacks is read."""
    row = '    Collector(name="spade", file="{pid}.spade.txt", parser="parse_spade", rank=9),\n'
    copy.insert("whichtorch/process/evidence/capture.py", "    FAULTHANDLER,\n)", row)
    copy.insert(
        "whichtorch/hangs/stack_readers.py",
        "def parse_gdb(",
        "def parse_spade(text, pid=0):\n"
        "    return (Process(pid=pid, threads=(Thread(tid=pid, frames=(python(text.strip(), 'x.py', 1),)),)),)\n\n\n",
    )
    (copy.folder / "stacks").mkdir()
    (copy.folder / "stacks" / "7.spade.txt").write_text("dig\n")
    printed = copy.run(
        "from pathlib import Path\n"
        "from whichtorch.hangs.stack_folder import read_folder\n"
        "print(read_folder(Path('stacks'))[0].threads[0].frames[0].function)\n"
    )
    assert printed == "dig\n"
    assert copy.changed == recipe("a collector")


def test_an_axis(copy: Copy) -> None:
    """A new axis is a row and a module: --axis takes its name, and its function is given what is asked."""
    copy.insert(
        "whichtorch/bisect/search_request.py",
        "    CONFIG = ",
        '    MOON = "moon", AxisRow("moons", is_ordered=False)\n',
    )
    copy.add(
        "whichtorch/bisect/axes/moons.py",
        "moons",
        "def search(request, cache, show):\n    print('of', request.scenario.name)\n    raise SystemExit(0)\n",
    )
    (copy.folder / "x.py").write_text("")
    assert copy.run("", "bisect", "x.py", "--axis", "moon", "--torch", "2.11.0") == "of x.py\n"
    assert copy.changed == recipe("an axis")


def test_a_report_format(copy: Copy) -> None:
    """A new format is a module and a row: `report` offers and writes it."""
    row = '    ReportFormat(name="count", help="Write how many.", file="count.txt", content=_count),\n)\n'
    copy.insert(
        "reports/formats.py",
        "FORMATS = (",
        "def _count(facts, called):\n    from reports.count import lines\n\n    return lines(facts)\n\n\n",
    )
    file = copy.folder / "reports" / "formats.py"
    text = file.read_text()
    file.write_text(text.rstrip().removesuffix(")") + row)
    copy.add("reports/count.py", "count", "def lines(facts):\n    yield str(len(facts.stored.result.cells))\n")
    assert "Write how many." in copy.run("", "report", "--help")
    assert copy.changed == recipe("a report format")


def test_an_executor(tmp_path: Path) -> None:
    """A new executor is a class with the members of the Protocol: a run takes it as it is."""

    class Refusing:
        """Runs nothing: each task ends as if its script had failed."""

        running: tuple[Supervised, ...] = ()

        def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
            return Ending(stopped_by="exit", exit_code=3, signal=None, seconds=0.1)

        def interrupt(self) -> None:
            pass

    script = tmp_path / "x.py"
    script.write_text("")
    request = Request(torch="2.0.0", python="3.11", build=Build(name="pypi"), config=Config(name="default"))
    planned = plan([request], [Scenario(name="x.py", path=script, source_hash="hash")], RunOptions())
    with new_run(tmp_path, ()) as store:
        site = LocalSite(FakeCache(tmp_path), Records(), store, lambda _event: None, Refusing())
        run = MatrixRun(planned, CellScheduler(site))
        run.run()
    assert [cell.outcome for cell in run.cells] == [Outcome.FAIL]
    assert recipe("an executor") == set()
