"""What is published, how it is installed, and whose modules it then takes."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

from tests.cli.shell import FAILS_IN_OLD, new_user, old_and_new
from tests.repository import Repository
from tests.test_rooms import ROOT
from tests.wheels import Index
from whichtorch.watch.checkup import CheckState, check_up, run_controls

BIN = Path(sys.executable).parent
# each ends the process that imports it; Python itself has imported none of them when a program begins
TRAPS = ("matrix.py", "queue.py", "click.py", "random.py", "types.py", "pydantic.py", "torch.py", "reports/__init__.py")
TOOLS: dict[str, tuple[str, ...]] = {
    "uv tool install": (str(BIN / "uv"), "tool", "install"),
    "uvx --from": (str(BIN / "uvx"), "--from"),
    "pipx install": (str(BIN / "pipx"), "install"),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what can be installed: a checkout of the files that git has, its wheel, and its URL."""
    folder = tmp_path_factory.mktemp("sources")
    checkout = Repository.at(folder / "checkout", with_python=False)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        (checkout.folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, checkout.folder / name, follow_symlinks=False)
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message", "all")
    subprocess.run([BIN / "uv", "build", "--quiet", "--out-dir", folder, checkout.folder], check=True)
    (wheel,) = folder.glob("*.whl")
    return {"wheel": str(wheel), "checkout": str(checkout.folder), "git": f"git+file://{checkout.folder}"}


def trapped(folder: Path) -> Path:
    """Fill a folder with a user's own modules, which must never be imported; return it."""
    for name in TRAPS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("raise SystemExit(f'{__file__} was imported')\n")
    return folder


def run(command: Sequence[str | Path], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Give a command in a folder, which stands on PYTHONPATH; it must end well."""
    environ = os.environ | {"PYTHONPATH": "."} | environ
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


@pytest.mark.thorough
@pytest.mark.xdist_group("sources")
def test_one_package_is_installed(tmp_path: Path, sources: dict[str, str]) -> None:
    """A wheel brings one top-level package, with every file that git has of it, and the license."""
    names = zipfile.ZipFile(sources["wheel"]).namelist()
    tracked = subprocess.run(["git", "ls-files", "whichtorch"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name for name in names if ".dist-info/" not in name} == set(tracked.stdout.split())
    subprocess.run([BIN / "uv", "venv", "--quiet", tmp_path / "venv"], check=True)
    pip, there = (str(BIN / "uv"), "pip"), ("--python", str(tmp_path / "venv"))
    subprocess.run([*pip, "install", "--quiet", "--no-deps", *there, sources["wheel"]], check=True)
    shown = run([*pip, "show", "--files", *there, "whichtorch"], tmp_path).stdout
    files = [Path(line.strip()) for line in shown.partition("Files:\n")[2].splitlines()]
    info = f"whichtorch-{version('whichtorch')}.dist-info"
    assert {file.parts[0] for file in files if ".." not in file.parts} == {"whichtorch", info}
    assert [file for file in files if ".." in file.parts] == [Path("../../../bin/whichtorch")]
    assert Path(info, "licenses", "LICENSE") in files


@pytest.mark.thorough
@pytest.mark.xdist_group("sources")
@pytest.mark.parametrize("source", ["wheel", "checkout", "git"])
@pytest.mark.parametrize("tool", TOOLS)
def test_it_is_installed_beside_a_users_modules(
    tool: str, source: str, sources: dict[str, str], tmp_path: Path
) -> None:
    """Installed by whichever tool from whichever source, it starts where a user's matrix.py and reports/ lie."""
    places = {"UV_TOOL_DIR": "tools", "UV_TOOL_BIN_DIR": "bin", "PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin"}
    places = {name: str(tmp_path / folder) for name, folder in places.items()}
    calls = [*TOOLS[tool], sources[source]]
    if "install" in calls:
        run(calls, tmp_path, **places)
        calls = [str(tmp_path / "bin" / "whichtorch")]
    else:
        calls.append("whichtorch")
    user = trapped(tmp_path / "user")
    assert "Many machines" in run([*calls, "--help"], user, **places).stdout
    assert run([*calls, "--version"], user, **places).stdout.split()[-1] == version("whichtorch")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return the folder that the index serves."""
    return old_and_new(tmp_path / "wheels")


@pytest.mark.thorough
@pytest.mark.parametrize("call", ["command", "module"])
def test_a_run_takes_no_module_of_the_user(call: str, tmp_path: Path, index: Index) -> None:
    """No process of a run imports what lies in the current folder, also if it stands on PYTHONPATH."""
    user = new_user(tmp_path, index)
    trapped(user.folder)
    command = [str(BIN / "whichtorch")]
    if call == "module":
        (user.folder / "types.py").unlink()  # Python imports it for -m, before any module of ours
        command = [sys.executable, "-m", "whichtorch"]
    (user.folder / "below").mkdir()
    user.script("below/repro.py", FAILS_IN_OLD)
    asked = ["matrix", "--torch", "9.2.0", "below/repro.py"]
    ended = run([*command, *asked], user.folder, **(user.environ | {"PYTHONPATH": "."}))
    assert "1 cell, all as expected" in ended.stdout


def test_the_doctor_takes_no_module_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tools and interpreters start beside a user's modules, also if these stand on PYTHONPATH."""
    user = trapped(tmp_path / "user")
    (user / "platform.py").write_text("raise SystemExit('it was imported')\n")
    monkeypatch.chdir(user)
    monkeypatch.setenv("PYTHONPATH", ".")
    pystack = next(check for check in check_up(tmp_path, Path("python")) if check.name == "pystack")
    assert pystack.state is CheckState.GOOD, pystack.found
    (control,) = run_controls(
        tmp_path, Path(sys.executable), 1, lambda _: nullcontext(lambda _: None), ("control/pass",)
    )
    assert control.problem is None


def test_metadata_is_complete() -> None:
    """An index can tell what it is, for whom, and under which license."""
    fields = metadata("whichtorch")
    assert fields["License-Expression"] == "BSD-3-Clause"
    assert fields["Requires-Python"] == ">=3.11"
    assert {"Summary", "Keywords", "Classifier", "Author"} <= set(fields)
