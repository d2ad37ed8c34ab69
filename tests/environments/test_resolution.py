"""Requests become requirements, and locks are read."""

from pathlib import Path

import pytest

from tests.environments.conftest import ask
from whichtorch.environments import resolution
from whichtorch.environments.commander import Commander, InstallError, log_summary, uv_environ
from whichtorch.environments.index.sources import Sources
from whichtorch.environments.resolution import (
    is_same_version,
    locked_versions,
    requirements_of,
    undeclared_requirements,
)
from whichtorch.model import Build


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        ("1.13.1", ["numpy<2", "setuptools<80"]),
        ("2.1.2", ["numpy<2", "setuptools<80"]),
        ("2.2.0", ["numpy<2", "setuptools<80"]),
        ("2.2.0.dev20231101+cpu", ["numpy<2", "setuptools<80"]),
        ("2.3.0", ["numpy", "setuptools<80"]),
        ("2.11.0", ["numpy"]),
        ("2.15.0+cu130", ["numpy"]),
        ("no version", []),
    ],
)
def test_needs(torch: str, expected: list[str]) -> None:
    """The table says what a release needs, at most one line per package, each with its reason."""
    rows = undeclared_requirements(torch)
    assert [row.requirement for row in rows] == expected
    assert all(row.reason for row in rows)


def test_requirements() -> None:
    """Torch, what the build and the matrix file want, then the needs nobody spoke of."""
    build = Build(name="mine", requirements=("NumPy==1.26.4",))
    requirements, notes = requirements_of(ask("2.1.2", build=build, requirements=("ninja",)))
    assert requirements == ["torch==2.1.2", "NumPy==1.26.4", "ninja", "setuptools<80"]
    assert [note.split(":")[0] for note in notes] == ["setuptools<80"]


def test_a_wheel_is_a_direct_reference() -> None:
    """A wheel's path is asked for by its URL, and has the needs of its version."""
    requirements, _ = requirements_of(ask("/a b/torch-2.1.2+cpu-cp311-cp311-linux_x86_64.whl"))
    assert requirements[0] == "torch @ file:///a%20b/torch-2.1.2%2Bcpu-cp311-cp311-linux_x86_64.whl"
    assert requirements[1:] == ["numpy<2", "setuptools<80"]


def test_locked_versions() -> None:
    """Pins, direct references, extras and markers are read; options and comments are not."""
    lock = (
        "# made by uv\n--index-url https://host\ntorch @ file:///w/torch-2.1.2%2Bcpu-py3-none-any.whl\n"
        "Jinja2==3.1.6 ; python_version > '3'\nfoo_bar[extra]==1.0\n    # via torch\n"
    )
    assert locked_versions(lock) == {"torch": "2.1.2+cpu", "jinja2": "3.1.6", "foo-bar": "1.0"}


@pytest.mark.parametrize(
    ("wanted", "version", "same"),
    [
        ("2.13.0", "2.13.0", True),
        ("2.13", "2.13.0", True),
        ("2.13.0", "2.13.0+cpu", False),
        ("/w/torch-2.13.0+cpu-py3-none-any.whl", "2.13.0+cpu", True),
    ],
)
def test_is_same_version(wanted: str, version: str, same: bool) -> None:
    """A local part makes another version."""
    assert is_same_version(wanted, version) == same


def test_uv_sees_only_the_sources(tmp_path: Path) -> None:
    """Uv is told where to look by variables, and nothing of the user's own settings or shell reaches it."""
    environ = {
        "PATH": "/bin",
        "UV_TORCH_BACKEND": "cu128",
        "UV_HTTP_TIMEOUT": "7",
        "PIP_INDEX_URL": "http://me:secret@pip",
        "PYTHONPATH": "/x",
        "VIRTUAL_ENV": "/v",
    }
    sources = Sources(index_url="http://main", extra_index_urls=("http://a", "http://b"), find_links=("/l",))
    env = uv_environ(sources, Build(name="cpu", index_url="http://cpu"), tmp_path, lock_timeout=9, environ=environ)
    assert env == {
        "PATH": "/bin",
        "UV_HTTP_TIMEOUT": "7",
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": f"{tmp_path}/cache/uv",
        "UV_LINK_MODE": "hardlink",
        "UV_LOCK_TIMEOUT": "9",
        "UV_PYTHON_INSTALL_DIR": f"{tmp_path}/pythons",
        "UV_PYTHON_DOWNLOADS": "manual",
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
        "UV_DEFAULT_INDEX": "http://main",
        "UV_INDEX": "http://cpu http://a http://b",
        "UV_FIND_LINKS": "/l",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Resolved\nerror: No solution found\n  cause: Because there is no\n  torch==9, it fails.\n",
            "No solution found Because there is no torch==9, it fails",
        ),
        (
            "  \N{MULTIPLICATION SIGN} No solution found:\n  ╰─▶ Because there is\n      no torch\n",
            "No solution found: Because there is no torch",
        ),
        ("error: Failed to fetch: http://me:secret@host/simple/\n", "Failed to fetch: http://host/simple/"),
        ("error: broken\nhint: try harder\n", "broken"),
        ("", "no explanation"),
    ],
)
def test_condensed(tmp_path: Path, text: str, expected: str) -> None:
    """Uv's explanation becomes one line, without ornaments and without credentials."""
    log = tmp_path / "log"
    log.write_text(text)
    assert log_summary(log) == expected


def test_only_a_contradiction_weakens_constraints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that gives no answer, or a build that fails, says nothing about them."""
    resolved: list[object] = []

    def fails(*_: object, **options: object) -> str:
        resolved.append(options["constraints"])
        raise InstallError("resolving failed: error sending request for url")

    monkeypatch.setattr(resolution, "compile_lock", fails)
    request = ask("2.1.2").model_copy(update={"constraints": ("numpy==1.26.4",)})
    with pytest.raises(InstallError, match="error sending request"):
        resolution.resolve(request, tmp_path / "python", Commander(home=tmp_path, logs=tmp_path))
    assert resolved == [("numpy==1.26.4",)]
