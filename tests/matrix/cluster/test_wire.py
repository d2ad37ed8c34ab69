"""What travels with a script."""

import random
from pathlib import Path

import pytest

from tests.environments.conftest import ask
from whichtorch.base.errors import UsageError
from whichtorch.matrix.cluster.wire import BatchRequest, ScriptFiles
from whichtorch.matrix.options import CommandOptions, RunOptions
from whichtorch.suite import selection


def test_a_users_script_travels_with_the_modules_that_it_imports(tmp_path: Path) -> None:
    """What lies beside it for other reasons stays; a module that was edited makes another folder."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    (mine / "package").mkdir(parents=True)
    (mine / "a.py").write_text("import helper, torch\nfrom package import part\nprint(open('data.txt').read())\n")
    (mine / "helper.py").write_text("value = 1\n")
    (mine / "package" / "__init__.py").write_text("")
    (mine / "package" / "part.py").write_text("")
    (mine / "other.py").write_text("")
    (mine / "data.txt").write_bytes(b"\xff\x00")
    scenario = selection.script(str(mine / "a.py"))
    first = ScriptFiles.model_validate_json(ScriptFiles.of(scenario, tmp_path).model_dump_json()).laid(theirs)
    names = {str(path.relative_to(first.path.parent)) for path in first.path.parent.rglob("*") if path.is_file()}
    assert names == {"a.py", "helper.py", "package/__init__.py", "package/part.py", "data.txt"}
    assert (first.path.parent / "data.txt").read_bytes() == b"\xff\x00"
    assert first.in_suite  # so that it runs in a folder of its own
    (mine / "helper.py").write_text("value = 2\n")
    assert ScriptFiles.of(scenario, tmp_path).laid(theirs).path.parent != first.path.parent


def test_a_script_of_the_suite_travels_alone(tmp_path: Path) -> None:
    """Its folder holds other scenarios."""
    scenario = next(each for each in selection.suite() if not each.native)
    assert set(ScriptFiles.of(scenario, tmp_path).files) == {scenario.path.name}


def test_a_request_travels_whole() -> None:
    """A worker makes the environment that was asked for, under the same key."""
    request = ask("2.11.0", overrides=("sympy==1.12",), requirements=("einops",), constraints=("rich==2.0",))
    batch = BatchRequest(id="1", run="r", request=request, options=RunOptions())
    sent = BatchRequest.model_validate_json(batch.model_dump_json()).request
    assert (sent, sent.install_key, sent.label) == (request, request.install_key, request.label)


def test_a_project_that_is_too_large_stays_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing ends once the limit is passed; below it, the project is the same on the other machine."""
    mine, here, there = tmp_path / "mine", tmp_path / "here", tmp_path / "there"
    (mine / "tests").mkdir(parents=True)
    (mine / "tests" / "large.bin").write_bytes(random.Random(1).randbytes(20_000))
    (mine / "link").symlink_to("tests")
    monkeypatch.chdir(mine)
    command = CommandOptions(ok_exit=(), skip_exit=(), in_place=False).scenario(("pytest",), here)
    laid = ScriptFiles.model_validate_json(ScriptFiles.of(command, here).model_dump_json()).laid(there)
    assert (laid.path / "link" / "large.bin").read_bytes() == (mine / "tests" / "large.bin").read_bytes()
    monkeypatch.setattr("whichtorch.matrix.cluster.wire.MOST_BYTES", 10_000)
    with pytest.raises(UsageError, match="the packed project is larger"):
        ScriptFiles.of(command, here)
