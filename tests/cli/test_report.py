"""`whichtorch report`, on runs that were really made, with stand-in wheels."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests import contract
from tests.cli.shell import FAILS_IN_OLD, User, new_user, old_and_new
from tests.reports.reading import tables
from tests.test_schema import validator
from tests.wheels import serve

BOTH = ("--torch", "9.1.0,9.2.0")
FAILS_TONIGHT = f"from pathlib import Path\n{FAILS_IN_OLD}".replace(
    "assert ", "assert not Path('tonight').exists() or "
)


pytestmark = pytest.mark.xdist_group("report")  # they share the runs, and leave them as they are


@pytest.fixture(scope="module")
def run_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Run a script that fails in the old release, but did not in an earlier night."""
    folder = tmp_path_factory.mktemp("report")
    with serve(old_and_new(folder / "wheels")) as index:
        user = new_user(folder, index)
        _run_twice(user)
        yield user


def _run_twice(user: User) -> None:
    script = user.script("repro.py", FAILS_TONIGHT)
    assert user.run("matrix", *BOTH, script).returncode == 0
    (user.folder / "tonight").touch()
    assert user.run("matrix", *BOTH, script, "--fresh").returncode == 1


def test_all_formats_of_the_latest_run(run_user: User) -> None:
    """Without options all of them are in output/, as the contract says, and outside readers read the same in each."""
    ended = run_user.run("report")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    output = run_user.folder / "output"
    assert {path.name for path in output.iterdir()} == {row[0] for row in contract.table("file", "holds")}
    result = json.loads((output / "result.json").read_text())
    validator().validate(result)
    assert [cell["outcome"] for cell in result["cells"]] == ["fail", "pass"]
    suites = {suite.name: suite for suite in JUnitXml.fromfile(str(output / "junit.xml"))}
    assert {name: (suite.tests, suite.failures) for name, suite in suites.items()} == {
        "torch-9.1.0-pypi": (1, 1),
        "torch-9.2.0-pypi": (1, 0),
    }
    text = (output / "report.md").read_text()
    assert "    1  regression         passed, and does not any more" in text
    assert any(row[:1] == ["repro.py"] for rows in tables(text) for row in rows)
    page = (output / "index.html").read_text()
    assert "1 regression: passed, and does not any more" in page
    assert "whichtorch explain repro.py" in page


def test_only_what_is_asked_for_is_written(run_user: User) -> None:
    """One option, one file; a folder that is not there is told before anything is written."""
    ended = run_user.run("report", "latest~1", "--junit", "earlier.xml")
    assert ended.returncode == 0
    assert ended.stdout == "wrote earlier.xml\n"
    (old, new) = JUnitXml.fromfile(str(run_user.folder / "earlier.xml"))
    assert (old.failures, new.failures) == (0, 0)
    ended = run_user.run("report", "--html", "unwritten", "--junit", "nowhere/junit.xml")
    assert ended.returncode == 2
    assert not (run_user.folder / "unwritten").exists()


def test_a_run_from_elsewhere_makes_the_same_page(run_user: User, tmp_path: Path) -> None:
    """A run's folder, taken to a machine that knows nothing else, has its logs with it."""
    _, run, *_ = sorted((run_user.folder / ".whichtorch" / "runs").iterdir())
    elsewhere = tmp_path / "artifact"
    shutil.copytree(run, elsewhere)
    nothing = {"WHICHTORCH_HOME": str(tmp_path / "nothing")}
    ended = run_user.run("report", str(elsewhere), "--html", "page", environ=nothing)
    assert ended.returncode == 0, ended.stderr
    page = (run_user.folder / "page" / "index.html").read_text()
    assert "as it was" in page
    assert "there is no earlier run" in page.lower() or "no earlier run" in page.lower()


def test_a_search_has_a_page_with_its_picture(run_user: User) -> None:
    """What a bisection tried is drawn on the page of its run, and on that of a matrix with the same test."""
    ended = run_user.run("bisect", "repro.py", *BOTH, "--build", "pypi")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    search = max((run_user.folder / ".whichtorch" / "runs").iterdir())
    run_user.run("report", search.name, "--markdown", "search.md")
    assert "regression" not in (run_user.folder / "search.md").read_text()
    assert (
        "fixed in 9.2.0, by torch itself: last that fails 9.1.0, first that passes 9.2.0"
        in (run_user.folder / "search.md").read_text()
    )
    assert "as it was" in (run_user.folder / "search.md").read_text()
    for run in (search.name, "latest"):
        run_user.run("report", run, "--html", "page")
        page = (run_user.folder / "page" / "index.html").read_text()
        assert "fixed in 9.2.0" in page
        assert "<svg" in page


def test_nothing_to_report_is_told(user: User) -> None:
    """Before the first run there is none, and the remedy is said."""
    ended = user.run("report")
    assert ended.returncode == 2
    assert "run `whichtorch matrix` first" in ended.stderr
    assert not (user.folder / "output").exists()
