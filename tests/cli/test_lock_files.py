"""What uv itself writes of a project, given to the commands that install: lock files, exports, and the project."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.shell import User
from tests.cli.test_packages import result_of
from tests.wheels import build_companions
from whichtorch.environments.commander import uv_path

PROJECT = """[project]
name = "tide"
version = "1.0"
requires-python = ">=3.9"
dependencies = ["torch>=9", "einops[fast]<1", "numpy"]
[dependency-groups]
dev = ["rich"]
[tool.uv]
package = false
"""


@pytest.fixture
def wheels(wheels: Path) -> Path:
    return build_companions(wheels, einops=("0.7.0", "0.8.0", "1.0.0"), rich=("2.0",))


@pytest.fixture
def project(user: User, wheels: Path) -> User:
    """Return a user in a project that was locked when einops 0.7.0 was the newest."""
    (user.folder / "pyproject.toml").write_text(PROJECT)
    (user.folder / "script.py").write_text(
        "import einops, torch\nassert einops.__version__ == '0.7.0'\nassert torch.behaviour == 'new'\n"
    )
    newer = wheels / "einops-0.8.0-py3-none-any.whl"
    content = newer.read_bytes()
    newer.unlink()
    for words in (
        ("lock",),
        ("export", "--format", "pylock.toml", "-o", "pylock.toml"),
        ("export", "-o", "requirements.txt"),
        ("pip", "compile", "pyproject.toml", "-o", "compiled.txt"),
    ):
        environ = user.environ | {"UV_CACHE_DIR": str(user.folder.parent / "uv"), "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [uv_path(), *words], cwd=user.folder, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    newer.write_bytes(content)
    return user


GIVEN = (
    ("--constraint", "uv.lock", "--with", "einops"),
    ("--constraint", "pylock.toml", "--with", "einops"),
    ("--constraint", "requirements.txt", "--with", "einops"),
    ("--constraint", "uv.lock", "--project"),
    ("-r", "requirements.txt"),
    ("-r", "compiled.txt"),
)


@pytest.mark.thorough
@pytest.mark.parametrize("words", GIVEN)
def test_a_matrix_has_the_versions(project: User, words: tuple[str, ...]) -> None:
    """A lock, an export of it, and what was compiled pin einops, whose newest version the script does not take."""
    (environment,) = result_of(project, "--torch", "9.2.0", "script.py", *words)["environments"]
    assert environment["packages"]["einops"] == "0.7.0"
    ended = project.run("plan", "--torch", "9.1.0,9.2.0", *words)
    assert "2/2  torch-9.2.0-pypi+" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("words", GIVEN)
def test_a_search_has_the_versions(project: User, words: tuple[str, ...]) -> None:
    """In each release; the torch of the lock is left out."""
    ended = project.run("bisect", "script.py", *words)
    assert "fixed in 9.2.0" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["matrix", "plan", "bisect"])
def test_what_goes_elsewhere_is_told(project: User, command: str) -> None:
    """A lock file is no requirements file, and a project is neither: the line names the option that takes it."""
    words = ("-r", "uv.lock", "-r", "pylock.toml", "-r", "pyproject.toml", "-r", ".", "--constraint", "pyproject.toml")
    ended = project.run(command, *(() if command == "plan" else ("script.py",)), *words)
    assert ended.returncode == 2
    for name in ("uv.lock", "pylock.toml", "pyproject.toml", "."):
        told = f"{name} is not a requirements file; --constraint takes a lock file, --project a project"
        assert told in ended.stderr, ended.stderr
    assert "pyproject.toml is no lock file that lists packages" in ended.stderr
