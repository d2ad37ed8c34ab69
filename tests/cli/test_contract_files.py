"""The files of a run are those that docs/contract.md names, and each holds what it says."""

import json
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import jsonschema
import pytest

from tests import contract
from tests.cli.shell import FAILS_IN_OLD, User
from tests.cli.test_chains import STALE_IN_OLD
from tests.wheels import build_pytest
from whichtorch.bisect.bisection import Bisection
from whichtorch.model import Environment, Model, Record, Run, Scenario
from whichtorch.records.store import CellLine
from whichtorch.triage.case import Case

STUCK = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n"
MODELS: dict[str, type[Model]] = {
    model.__name__: model for model in (Run, Scenario, Environment, CellLine, Record, Bisection, Case)
}
OBSERVED = '# /// scenario\n# conditions = [{ op = "aten::mm" }]\n# ///\nimport torch\n'


def left_by(folder: Path) -> set[str]:
    """Return the files below a folder, whatever the numbers of attempts and of their runs."""
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    numbered = {re.sub(r"^attempts/\d{5}/", "attempts/NNNNN/", path) for path in paths}
    return {re.sub(r"^(attempts/NNNNN/(run|again))\d+/", r"\1N/", path) for path in numbered}


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_files_of_runs(user: User, wheels: Path) -> None:
    """A matrix with all outcomes, a chain, a command, a bisection, a case: all files that the contract names."""
    scripts = [user.script("repro.py", FAILS_IN_OLD), user.script("stuck.py", STUCK), user.script("seen.py", OBSERVED)]
    ended = user.run("matrix", "--torch", "9.1.0,9.2.0", *scripts)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    ended = user.run("matrix", "--torch", "9.1.0", "--runs", "2", user.script("again.py", STALE_IN_OLD))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    build_pytest(wheels)
    (user.folder / "test_it.py").write_text("def test_it():\n    assert not open('left', 'w').write('behind')\n")
    ended = user.run("matrix", "--torch", "9.2.0", "--with", "pytest", "--", "pytest", "test_it.py")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    ended = user.run("bisect", scripts[0], "--torch", "9.1.0,9.2.0", "--build", "pypi")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ended = user.run("triage", scripts[0], "--torch", "9.1.0", "--until", "reproduce")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = contract.table("file", "holds", "one of")
    paths = set().union(*map(left_by, (user.folder / ".whichtorch" / "runs").iterdir()))
    patterns = [row[0] for row in rows]
    assert {path for path in paths if not any(fnmatchcase(path, pattern) for pattern in patterns)} == set()
    assert {pattern for pattern in patterns if not any(fnmatchcase(path, pattern) for path in paths)} == set()
    for name, _, model in rows:
        for file in (user.folder / ".whichtorch" / "runs").glob(f"*/{name}") if model != "-" else ():
            text = file.read_text()
            for item in text.splitlines() if file.suffix == ".jsonl" else [text]:
                jsonschema.validate(json.loads(item), MODELS[model].model_json_schema(mode="serialization"))
    assert {model for _, _, model in rows if model != "-"} == set(MODELS)
