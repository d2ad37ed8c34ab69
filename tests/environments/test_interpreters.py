"""Where interpreters are looked for."""

import os
import stat
import sys
from pathlib import Path

import pytest

from whichtorch.environments import interpreters
from whichtorch.environments.commander import Commander
from whichtorch.environments.interpreters import DEFAULT_PYTHON, InterpreterNotFoundError, find_interpreter


def commander(tmp_path: Path) -> Commander:
    """Return what runs uv for a state folder."""
    return Commander(home=tmp_path / "home", logs=tmp_path / "logs")


def fake_python(
    path: Path, version: str, *, headers: bool = True, implementation: str = "CPython", has_gil: bool = True
) -> Path:
    """Write a program that answers the query as a Python of that version would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    answer = f'["{implementation}", "{version}", 64, {str(not has_gil).lower()}, {str(headers).lower()}, "{path}"]'
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment of a user who has nothing; findpython sees it too, and uv cannot download."""
    environ = {"HOME": str(tmp_path / "user"), "PATH": str(tmp_path / "bin"), "UV_OFFLINE": "1"}
    for name in ("PYENV_ROOT", "CONDA_EXE", "CONDA_PREFIX", "MAMBA_ROOT_PREFIX", "ASDF_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ


def test_default_python() -> None:
    """The running Python is the default."""
    assert f"{sys.version_info.major}.{sys.version_info.minor}" == DEFAULT_PYTHON


def test_the_running_one_is_nearest(tmp_path: Path) -> None:
    """An interpreter of the running version is found, and is no shim and no environment's."""
    interpreter = find_interpreter(DEFAULT_PYTHON, commander(tmp_path))
    assert interpreter.exists()
    assert interpreter.parent.name != "shims"
    assert not (interpreter.parent.parent / "pyvenv.cfg").exists()


@pytest.mark.parametrize(
    "path",
    [
        "bin/python3.99",
        "user/.pyenv/versions/3.99.1/bin/python3",
        "user/miniconda3/bin/python3",
        "user/miniconda3/envs/work/bin/python3",
        "user/.local/share/uv/python/cpython-3.99.1-linux/bin/python3",
        "home/pythons/cpython-3.99.1/bin/python3",
    ],
)
def test_where_interpreters_are_searched(tmp_path: Path, user: dict[str, str], path: str) -> None:
    """PATH, pyenv, conda, uv and what was downloaded earlier are all searched."""
    expected = fake_python(tmp_path / path, "3.99.1")
    assert find_interpreter("3.99", commander(tmp_path), user) == expected
    assert find_interpreter("3.99.1", commander(tmp_path), user) == expected


def test_one_with_headers_is_better(tmp_path: Path, user: dict[str, str]) -> None:
    """Inductor compiles against Python.h, so an interpreter that has it is preferred."""
    bare = fake_python(tmp_path / "bin/python3.99", "3.99.1", headers=False)
    assert find_interpreter("3.99", commander(tmp_path), user) == bare
    whole = fake_python(tmp_path / "user/miniconda3/bin/python3", "3.99.2")
    assert find_interpreter("3.99", commander(tmp_path), user) == whole


def test_a_python_without_the_gil_is_one_of_its_own(tmp_path: Path, user: dict[str, str]) -> None:
    """3.99t is only a build without the GIL, and 3.99 only one with it, side by side in one folder."""
    free = fake_python(tmp_path / "bin/python3.99t", "3.99.1", has_gil=False)
    usual = fake_python(tmp_path / "bin/python3.99", "3.99.1")
    found = [find_interpreter(asked, commander(tmp_path), user) for asked in ("3.99t", "3.99")]
    assert found == [free, usual]


def test_others_are_left_alone(tmp_path: Path, user: dict[str, str]) -> None:
    """Another version, PyPy and a program that fails are no answer; all that was searched is listed."""
    fake_python(tmp_path / "bin/python3", "3.98.1")
    fake_python(tmp_path / "bin/python", "3.99.1", implementation="PyPy")
    broken = fake_python(tmp_path / "bin/python3.99", "3.99.1")
    broken.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(InterpreterNotFoundError) as error:
        find_interpreter("3.99", commander(tmp_path), user)
    message = error.value.message
    for searched in ("bin (PATH)", "home/pythons", "pyenv", "conda", "asdf", "rye", "uv"):
        assert searched in message
    assert "cannot download" in message
    assert error.value.exit_code == 3


def test_a_program_that_hangs_is_no_interpreter(
    tmp_path: Path, user: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate that does not answer is passed over."""
    monkeypatch.setattr(interpreters, "QUERY_TIMEOUT", 0.1)
    hangs = fake_python(tmp_path / "bin/python3.99", "3.99.1")
    hangs.write_text(f"#!{os.path.realpath(sys.executable)}\nimport signal\nsignal.pause()\n")
    with pytest.raises(InterpreterNotFoundError):
        find_interpreter("3.99", commander(tmp_path), user)
