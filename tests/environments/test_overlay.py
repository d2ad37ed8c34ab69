"""Overlays of a real virtual environment: changed where they are to be, while the original stays byte for byte."""

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from whichtorch.base.errors import PreventedError
from whichtorch.environments.overlay import make_overlay, read_source, site_packages

PACKAGE = {
    "__init__.py": "from tool import kept, old\nvalue = old.value\n",
    "kept.py": "value = 1\n",
    "old.py": "value = 1\n",
    "sub/__init__.py": "",
    "sub/only.py": "",
}


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Return an environment with a package called `tool`, imported once, a script of it, and a module elsewhere."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    for name, text in PACKAGE.items():
        file = site_packages(folder) / "tool" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    elsewhere = tmp_path / "checkout"
    elsewhere.mkdir()
    (elsewhere / "edited.py").touch()
    (site_packages(folder) / "edited.pth").write_text(f"{elsewhere}\n")
    (folder / "bin" / "tool").write_text(f"#!{folder}/bin/python\nimport sys, tool\nprint(sys.prefix, tool.value)\n")
    (folder / "bin" / "tool").chmod(0o755)
    (folder / "inside").symlink_to(folder / "bin")
    assert python(folder, "import tool, edited; print(tool.value)") == "1"
    return folder


def python(venv: Path, code: str) -> str:
    """Run code in an environment, and return what it prints."""
    argv = [str(venv / "bin" / "python"), "-c", code]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def state(venv: Path) -> dict[str, tuple[object, ...]]:
    """Return of each file below a folder what it holds, its mode, its time of change and which file it is."""
    found: dict[str, tuple[object, ...]] = {}
    for parent, _, names in os.walk(venv):
        for file in (Path(parent, name) for name in names):
            status = file.lstat()
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            found[str(file.relative_to(venv))] = content, status.st_mode, status.st_mtime_ns, status.st_ino
    return found


def test_the_original_stays_as_it_is(venv: Path, tmp_path: Path) -> None:
    """Files are changed, made and removed in the overlay; after imports there the original has the same hashes."""
    before = state(venv)
    changes = {"tool/old.py": "value = 2\n", "tool/new/part.py": "value = 3\n", "tool/sub/only.py": None}
    make_overlay(venv, tmp_path / "overlay", changes)
    code = "import tool.new.part, tool.kept, tool.sub, edited, sys; print(tool.value, tool.new.part.value, sys.prefix)"
    assert python(tmp_path / "overlay", code) == f"2 3 {tmp_path / 'overlay'}"
    assert not (site_packages(tmp_path / "overlay") / "tool" / "sub" / "only.py").exists()
    assert python(venv, "import tool; print(tool.value)") == "1"
    assert state(venv) == before


def test_bytecode_is_never_written_through_a_link(venv: Path, tmp_path: Path) -> None:
    """Where Python writes bytecode of the overlay anew, that of the original keeps its bytes: it is another file."""
    make_overlay(venv, tmp_path / "overlay", {})
    kept = site_packages(tmp_path / "overlay") / "tool" / "kept.py"
    bytecode = next(kept.parent.glob("__pycache__/kept.*.pyc"))
    before, linked = state(venv), bytecode.stat().st_ino
    assert linked in {status[3] for status in before.values()}
    kept.unlink()
    kept.write_text("value = 4\n")
    os.utime(kept, (1, 1))
    assert python(tmp_path / "overlay", "import tool.kept; print(tool.kept.value)") == "4"
    assert bytecode.stat().st_ino != linked
    assert state(venv) == before


def test_a_change_of_the_same_size_is_seen(venv: Path, tmp_path: Path) -> None:
    """Python compiles a changed file anew though it has the size of the earlier one, at each change again."""
    for value in (7, 8, 1):
        make_overlay(venv, tmp_path / "overlay", {"tool/old.py": f"value = {value}\n"})
        assert python(tmp_path / "overlay", "import tool; print(tool.value)") == str(value)
    seconds = {int((site_packages(folder) / "tool/old.py").stat().st_mtime) for folder in (venv, tmp_path / "overlay")}
    assert len(seconds) == 2


def test_scripts_run_in_the_overlay(venv: Path, tmp_path: Path) -> None:
    """A script whose first line names the environment's Python runs that of the overlay, and so do links inside."""
    make_overlay(venv, tmp_path / "overlay", {"tool/old.py": "value = 2\n"})
    for folder in ("bin", "inside"):
        script = tmp_path / "overlay" / folder / "tool"
        answer = subprocess.run([script], check=True, capture_output=True, text=True).stdout
        assert answer == f"{tmp_path / 'overlay'} 2\n"


def test_an_earlier_overlay_is_replaced(venv: Path, tmp_path: Path) -> None:
    """What was at the place before, or was left there half-made by a killed process, is gone."""
    make_overlay(venv, tmp_path / "overlay", {"tool/old.py": "value = 2\n", "tool/new.py": ""})
    (tmp_path / ".overlay.half").mkdir()
    (tmp_path / ".overlay.half" / "left over").touch()
    make_overlay(venv, tmp_path / "overlay", {})
    assert state(tmp_path / "overlay").keys() == state(venv).keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout", "overlay", "venv"]


def test_the_overlay_outlives_the_original(venv: Path, tmp_path: Path) -> None:
    """An overlay works on when the environment that it was made of is removed."""
    make_overlay(venv, tmp_path / "overlay", {"tool/old.py": "value = 2\n"})
    venv.rename(tmp_path / "aside")
    assert python(tmp_path / "overlay", "import tool, edited; print(tool.value)") == "2"


def test_no_half_is_left(venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be linked, as to another file system, it says so, and nothing is left of the overlay."""

    def fail(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(PreventedError, match="Invalid cross-device link"):
        make_overlay(venv, tmp_path / "overlay", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout", "venv"]


@pytest.mark.parametrize("name", ["../escaped.py", "/escaped.py", "outside/escaped.py"])
def test_nothing_outside_is_written(venv: Path, tmp_path: Path, name: str) -> None:
    """A name that leads out of site-packages, by itself or through a link, is refused, and nothing is written."""
    (site_packages(venv) / "outside").symlink_to(tmp_path / "checkout")
    with pytest.raises(ValueError, match="not in the environment"):
        make_overlay(venv, tmp_path / "overlay", {name: ""})
    assert not list(tmp_path.rglob("escaped.py"))


def test_any_source_comes_back(tmp_path: Path) -> None:
    """A source is read as a text that stands for the same bytes, whatever its encoding and line ends."""
    source = tmp_path / "latin.py"
    source.write_bytes("# coding: latin-1\r\nname = 'é'\n".encode("latin-1"))
    assert read_source(source).encode("utf-8", "surrogateescape") == source.read_bytes()
