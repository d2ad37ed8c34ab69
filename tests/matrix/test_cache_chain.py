"""Chains of runs that share caches: what decides, which caches were read, and which of them was at fault."""

import errno
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import PASSED, FakeCache, FakeExecutor
from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.matrix import cached_files, planning
from whichtorch.matrix.cached_files import UNSEEN
from whichtorch.matrix.cell_scheduler import CellScheduler
from whichtorch.matrix.lab import MatrixRun
from whichtorch.matrix.options import RunOptions
from whichtorch.matrix.site import LocalSite
from whichtorch.model import Build, Cell, ChainEvidence, Config, Doubt, Environment, Outcome, Request, Scenario
from whichtorch.process.executor import Executor, LocalExecutor
from whichtorch.process.supervision import Task
from whichtorch.records.line_index import Records
from whichtorch.records.store import new_run
from whichtorch.reports.cell_text import summary

PRELUDE = """
import os, sys
from pathlib import Path

RELEASE = Path(sys.executable).name.removeprefix("python")

def cached(folder):
    '''Return whether an earlier run has cached something there, having read it; cache it.'''
    path = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / folder / "entry"
    path.parent.mkdir(parents=True, exist_ok=True)
    is_there = path.exists() and bool(path.read_text())
    path.write_text("x")
    return is_there

with open(LOG, "a") as log:
    log.write(os.environ.get("STEP", RELEASE) + " ")
"""


@dataclass
class Chained:
    """Cells that were run, and what the scripts have noted."""

    cells: Sequence[Cell]
    log: list[str]
    folder: Path
    acquired: list[str] = field(default_factory=list)

    @property
    def cell(self) -> Cell:
        (cell,) = self.cells
        return cell

    @property
    def chain(self) -> ChainEvidence:
        """What is on record of the only cell's runs."""
        assert self.cell.chain is not None
        return self.cell.chain

    @property
    def left(self) -> list[str]:
        """What is left of shared folders."""
        return [path.name for path in self.folder.rglob("*") if path.suffix in {".chain", ".written"}]


class NamedPythons(FakeCache):
    """Environments whose Python has the release in its name."""

    def environment(self, request: Request) -> Environment:
        python = self.home / f"python{request.torch}"
        if not python.exists():
            python.symlink_to(sys.executable)
        return super().environment(request).model_copy(update={"interpreter": python})


def requests(*versions: str) -> list[Request]:
    return [
        Request(torch=version, python="3.11", build=Build(name="pypi"), config=Config(name="default"))
        for version in versions
    ]


def run(
    folder: Path, source: str, *versions: str, written: str = "", executor: Executor | None = None, **options: Any
) -> Chained:
    """Run a script as a chain of two, unless `options` say otherwise."""
    path, log = folder / "script.py", folder / "log.txt"
    path.write_text(f"LOG = {str(log)!r}\n{PRELUDE}{textwrap.dedent(source)}")
    scenario = Scenario.model_validate({"name": "script", "path": path, "source_hash": str(hash(source))})
    asked = RunOptions(**{"runs": 2, "fresh": True} | options)
    planned = planning._joined([(requests(*(versions or ("1",))), [scenario])], asked, written)
    cache = NamedPythons(folder)
    with new_run(folder, ()) as store:
        site = LocalSite(cache, Records(folder), store, lambda _: None, executor or LocalExecutor())
        matrix_run = MatrixRun(planned, CellScheduler(site))
        matrix_run.run()
        site.close()
    return Chained(matrix_run.cells, log.read_text().split() if log.exists() else [], folder, cache.acquired)


def test_a_run_that_reads_what_was_cached_may_fail(tmp_path: Path) -> None:
    """The cell has the outcome of run 2 and says so, which caches it read, and without which one it passes."""
    source = "here, there = cached('fxgraph/ab'), cached('c1')\nassert not here, 'stale'"
    ended = run(tmp_path, source)
    cell, chain = ended.cell, ended.chain
    assert (cell.name, cell.outcome, cell.message) == ("script[runs=2]", Outcome.FAIL, "stale")
    assert (chain.run, chain.runs, chain.read) == (2, 2, {"Inductor's FX graph cache": 1, "Inductor's code cache": 1})
    assert chain.culprit == "Inductor's FX graph cache"
    words = "run 2 of 2; run 1 passes; it passes if Inductor's FX graph cache is emptied"
    assert (cell.reason, summary(cell).endswith(f"; {words}")) == (words, True)
    folders = sorted(path.parent.name for path in tmp_path.rglob("stdout.txt"))
    assert folders == ["00001", "again1", "again2", "again3", "run1"]
    assert ended.left == []


def test_the_switch_of_the_cache_is_tried(tmp_path: Path) -> None:
    """If the run passes with the cache switched off, it says by which variable."""
    source = "stale = cached('aotautograd')\nassert not stale or os.environ.get('TORCHINDUCTOR_AUTOGRAD_CACHE') == '0'"
    cure = "it passes if AOTAutograd's cache is emptied; with TORCHINDUCTOR_AUTOGRAD_CACHE=0 it passes"
    assert run(tmp_path, source).chain.cure == cure


def test_caches_that_only_together_are_at_fault(tmp_path: Path) -> None:
    """It is said that no cache alone is, and whether the run passes with all of them emptied."""
    both = run(tmp_path, "here, there = cached('fxgraph'), cached('c1')\nassert not (here or there)").chain
    assert (both.culprit, both.cure) == ("", "it passes only with all caches emptied")
    kept = tmp_path / "kept"
    source = (
        f"cached('fxgraph')\nis_first = not os.path.exists({str(kept)!r})\nopen({str(kept)!r}, 'w')\nassert is_first"
    )
    assert run(tmp_path, source).chain.cure == "it fails even with all caches emptied"


def test_a_failure_that_does_not_repeat_blames_no_cache(tmp_path: Path) -> None:
    """The red run is repeated as it was first."""
    source = "cached('fxgraph')\nassert len(open(LOG).read().split()) != 2"
    ended = run(tmp_path, source, vary=("STEP=a,b",))
    assert ended.chain.cure == "it passes when it is run again with the same caches"


def test_a_search_looks_for_no_cache(tmp_path: Path) -> None:
    """A probe is no longer than its runs."""
    ended = run(tmp_path, "assert not cached('fxgraph')", vary=("STEP=a,b",), in_search=True)
    assert (ended.cell.outcome, ended.log) == (Outcome.FAIL, ["a", "b"])


def test_a_chain_passes_if_each_run_does(tmp_path: Path) -> None:
    """What it read is on record; it takes as long as its runs do together; each has its own value of a variable."""
    ended = run(tmp_path, "cached('fxgraph')", runs=3, vary=("STEP=4,2,1",))
    chain, (attempt,) = ended.chain, ended.cell.attempts
    assert (ended.cell.outcome, ended.cell.reason, ended.log) == (Outcome.PASS, "never imported torch", ["4", "2", "1"])
    assert (chain.read, len(chain.seconds)) == ({"Inductor's FX graph cache": 2}, 3)
    assert attempt.seconds == pytest.approx(sum(chain.seconds), abs=0.01)
    assert ended.cell.variant == {"runs": "3", "STEP": "4,2,1"}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", "run 2 read nothing that was cached before it: nothing was"),
        (
            """
            path = Path(os.environ["TRITON_CACHE_DIR"], str(os.getpid()))
            path.parent.mkdir(exist_ok=True)
            path.write_text("x")
            """,
            "run 2 read nothing that was cached before it: 1 file of Triton's cache",
        ),
    ],
)
def test_a_pass_that_reads_nothing_is_vacuous(tmp_path: Path, source: str, why: str) -> None:
    """A later run that read nothing of what an earlier one had cached says nothing of caches."""
    cell = run(tmp_path, source).cell
    assert (cell.outcome, cell.doubt, cell.reason) == (Outcome.VACUOUS, Doubt.UNREAD, why)


def test_a_disk_that_notes_no_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is concluded from what is not known: a pass stays one, and says so."""
    monkeypatch.setattr(cached_files, "_unread", lambda path: 2**62)
    ended = run(tmp_path, "cached('fxgraph')")
    assert (ended.cell.outcome, ended.chain.read, ended.cell.reason) == (Outcome.PASS, None, UNSEEN)


def test_the_first_run_may_fail(tmp_path: Path) -> None:
    """It ends the chain."""
    ended = run(tmp_path, "cached('fxgraph')\nassert False, 'cold'")
    assert (ended.cell.outcome, ended.cell.reason, ended.log) == (Outcome.FAIL, "run 1 of 2", ["1"])


def test_a_file_that_a_run_replaces_was_read(tmp_path: Path) -> None:
    """A profile that is read and written anew is seen through the old file."""
    source = """
        profile = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "dynamo" / "code_state.pkl"
        profile.parent.mkdir(parents=True, exist_ok=True)
        profile.exists() and profile.read_text()
        profile.with_suffix(".new").write_text("x")
        profile.with_suffix(".new").replace(profile)
    """
    assert run(tmp_path, source).chain.read == {"Dynamo's saved profile": 1}


def test_one_environment_writes_for_the_others(tmp_path: Path) -> None:
    """The row says who wrote the caches, a column who reads them; they are written once for all others."""
    source = """
        path = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "fxgraph" / "entry"
        path.parent.mkdir(parents=True, exist_ok=True)
        wrote = path.read_text() if path.exists() else ""
        assert not (wrote == "1" and RELEASE == "3"), "written by 1"
        wrote or path.write_text(RELEASE)
    """
    ended = run(tmp_path, source, "1", "2", "3", written="1", in_search=True)
    assert [(cell.name, cell.environment, cell.outcome) for cell in ended.cells] == [
        ("script[runs=2,written-by=1]", "id-2-default", Outcome.PASS),
        ("script[runs=2,written-by=1]", "id-3-default", Outcome.FAIL),
    ]
    assert sorted(ended.log) == ["1", "2", "3"]
    assert ended.cells[1].reason == "run 2 of 2; run 1 passes in torch-1-pypi"
    assert ended.left == []


def test_a_writer_that_fails_is_named(tmp_path: Path) -> None:
    """What goes wrong with the writer is said to be there."""
    ended = run(tmp_path, "assert RELEASE != '1'", "1", "2", "3", written="1")
    assert [(cell.environment, cell.reason) for cell in ended.cells] == [
        ("id-2-default", "run 1 of 2 in torch-1-pypi"),
        ("id-3-default", "run 1 of 2 in torch-1-pypi"),
    ]
    assert ended.log == ["1"]
    with pytest.raises(UsageError, match="no environment of the matrix is 4"):
        run(tmp_path, "", "1", "2", written="4")


def names_and_writers(two: Sequence[Request], written: str, **variant: str) -> list[tuple[str, str]]:
    """Return the name and the writer's release and wheel, of each cell of one script."""
    header = {"name": "script", "path": "script.py", "source_hash": "x"}
    scenario = Scenario.model_validate(header | {"variants": {name: [text] for name, text in variant.items()}})
    plan = planning._joined([(two, [scenario])], RunOptions(runs=None if variant else 2), written)
    return [(cell.variant["written-by"], cell.writer.torch + cell.writer.wheel if cell.writer else "") for cell in plan]


def test_environments_that_differ_in_more_are_named_in_full() -> None:
    """A release that is there twice does not say who wrote the caches."""
    two = [*requests("1"), *(each.model_copy(update={"build": Build(name="cpu")}) for each in requests("1"))]
    both = [("torch-1-cpu", "1"), ("torch-1-pypi", "1")]
    assert names_and_writers(two, "1") == both
    assert names_and_writers(two, "torch-1-cpu") == both[:1]


def test_the_wheel_of_a_writer_is_its_own() -> None:
    """A release candidate of the same build has another wheel."""
    first, second = requests("1", "2")
    wheels = [first.model_copy(update={"wheel": "a"}), second.model_copy(update={"wheel": "b"})]
    assert names_and_writers(wheels, "2") == [("2", "2b")]


def test_no_environment_writes_for_itself() -> None:
    """A test that names its writer is left out there."""
    asked = {"runs": "2", "written-by": "1"}
    assert names_and_writers(requests("1", "2"), "", **asked) == [("1", "1")]


def test_a_report_s_test_finds_its_writer() -> None:
    """The name of a row is enough where the writer is a release; where it is more, the matrix must have it."""
    scenario = Scenario.model_validate({"name": "script", "path": "script.py", "source_hash": "x"})
    (request,) = requests("2")
    variant = {"runs": "2", "written-by": "1"}
    planned = planning.PlannedCell(request=request, scenario=scenario, variant=variant, options=RunOptions())
    assert planned.writer == request.model_copy(update={"torch": "1"})
    with pytest.raises(UsageError, match="this matrix has no environment of that name"):
        _ = replace(planned, variant=variant | {"written-by": "torch-1-cpu"}).writer


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """Neither the shared folder nor that of the attempt."""

    def behave(task: Task) -> None:
        Path(task.env["TMPDIR"], "entry").write_text("x")

    ended = run(tmp_path, "", executor=FakeExecutor(behave))
    assert (list(ended.cells), ended.left) == ([], [])
    assert not list(tmp_path.glob("runs/*/attempts/*"))


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the command from going on, with the reason in one line."""

    def make(_place: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "shared")

    monkeypatch.setattr(cached_files.SharedFolder, "make", make)
    with pytest.raises(PreventedError, match=r"caches of a chain cannot be written: .*Read-only file system"):
        run(tmp_path, "")


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is told once, however many files are not copied."""

    def copy(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), source, None, target)

    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, copy, False, False))
    source = "cached('fxgraph')\ncached('aotautograd')\n"
    with pytest.raises(PreventedError) as caught:
        run(tmp_path, source)
    assert str(caught.value.message).startswith("the caches of a chain cannot be written: [Errno 28] No space left")
    assert caught.value.message.count("No space left") == 1
    assert not list(tmp_path.rglob("*.chain"))


def test_one_run_is_no_chain(tmp_path: Path) -> None:
    """`--runs 1` changes nothing: neither the variant, by which records are found, nor what is stored."""
    cell = run(tmp_path, "", runs=1, executor=FakeExecutor(lambda _: PASSED)).cell
    assert (cell.variant, cell.outcome, cell.chain) == ({}, Outcome.PASS, None)
    (record,) = tmp_path.glob("runs/*/records.jsonl")
    assert "chain" not in record.read_text()
