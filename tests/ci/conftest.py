"""A checkout of the project with a small suite, the commands on its PATH, and what serves it stand-in wheels."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ci.service import ROOT, Service
from tests.wheels import Index, build_companion, build_wheel, serve

VERSIONS = ("9.1.0", "9.2.0")
MATRIX = """
[axes]
torch = ["recent:2"]
build = ["pypi"]
config = ["default"]

[suite]
scenarios = ["*"]
"""
ON_REQUEST = "# /// scenario\n# summary = 'passes'\n# timeout = 30\n# on_request = true\n# ///\nimport torch\n"
SCENARIOS = {
    **dict.fromkeys(("inductor/fine", "warm/fine"), ON_REQUEST),
    "night/turns": (
        "# /// scenario\n# summary = 'fails where it is planted'\n# timeout = 30\n# ///\n"
        "import torch\nassert torch.behaviour != 'worse', 'planted'\n"
    ),
}
# the repository of a user
PROJECT = """
[tool.whichtorch.axes]
torch = [">=9.1"]
build = ["pypi"]

[tool.whichtorch.suite]
scripts = ["repros/*.py"]
"""
SCRIPTS = {
    "fine": "import torch\n",
    "turns": "import torch\n\ndef check():\n    assert torch.behaviour != 'worse', 'planted: 100%'\n\ncheck()\n",
}
# nox itself, and the project's own noxfile; but what its sessions would install is there, and there is no network
NOX = f'#!/bin/sh\nexec "{sys.executable}" -m nox --no-venv --no-install --script-mode none "$@"\n'
COMMANDS = {
    "nox": NOX,
    "python": f'#!/bin/sh\nexec "{sys.executable}" "$@"\n',
    "whichtorch": f'#!/bin/sh\nexec "{sys.executable}" -m whichtorch "$@"\n',
    "gh": f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/ci/gh.py" "$@"\n',
    "sudo": '#!/bin/sh\necho "sudo $*"\n',  # a test changes no machine
}


@dataclass
class Outside:
    """What lies outside the project: its package index, and commands."""

    wheels: Path
    index: Index
    environ: dict[str, str]

    def publish(self, **behaviours: str) -> None:
        """Serve a torch for each version, that behaves as it is said to: v9_2_0="worse"."""
        for version in VERSIONS:
            behaviour = behaviours.get("v" + version.replace(".", "_"), "well")
            build_wheel(self.wheels, version, behaviour=behaviour)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """Return an index with two releases of torch, and the commands that a runner has."""
    folder = tmp_path_factory.mktemp("outside")
    commands = folder / "bin"
    commands.mkdir()
    for name, text in COMMANDS.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    build_companion(folder / "wheels", "numpy", "2.2.0")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("UV_", "PIP_", "WHICHTORCH_", "GITHUB_", "GH_", "NOX"))
    }
    with serve(folder / "wheels") as index:
        settings = {
            "HOME": str(folder),
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "UV_DEFAULT_INDEX": index.url,
            "WHICHTORCH_PYTORCH_INDEX": "http://127.0.0.1:9/whl",
        }
        found = Outside(folder / "wheels", index, kept | settings)
        found.publish()
        yield found


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the project with a matrix and a suite that take seconds."""
    folder = tmp_path_factory.mktemp("sources")
    shutil.copytree(
        ROOT / "whichtorch", folder / "whichtorch", ignore=shutil.ignore_patterns("__pycache__", "scenarios")
    )
    for name in ("noxfile.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    package = folder / "whichtorch"
    for name, text in SCENARIOS.items():
        path = package / "scenarios" / f"{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    (package / "matrix" / "default.toml").write_text(MATRIX)
    return folder


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, sources: Path) -> Callable[[], Path]:
    """Return what gives a checkout on a machine that nothing was done on."""

    def checkout() -> Path:
        folder = tmp_path_factory.mktemp("machine") / "project"
        folder.mkdir()
        shutil.copy(sources / "noxfile.py", folder)  # the folder it lies in is where state is kept
        for name in ("whichtorch", "pyproject.toml"):
            (folder / name).symlink_to(sources / name)  # so that they are compiled once
        return folder

    return checkout


@pytest.fixture
def service(tmp_path: Path, outside: Outside, machines: Callable[[], Path]) -> Service:
    """Return GitHub, before the first night."""
    return Service(tmp_path, outside.environ, machines)


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return what gives a checkout of a user's own repository on a machine that nothing was done on."""

    def checkout() -> Path:
        folder = tmp_path_factory.mktemp("machine") / "repository"
        (folder / "repros").mkdir(parents=True)
        for name, text in SCRIPTS.items():
            (folder / "repros" / f"{name}.py").write_text(text)
        (folder / "pyproject.toml").write_text(PROJECT)
        return folder

    return checkout
