"""Somebody at a shell, and what they wait for."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.cli import forked
from tests.patience import PATIENCE
from tests.process.running import until
from tests.wheels import Index, build_companion, build_wheel

ROOT = Path(__file__).parent.parent.parent
FAILS_IN_OLD = "NOTE\nimport torch\nassert torch.behaviour == 'new', 'as it was'\n"


@dataclass
class User:
    """Somebody at a shell in a folder that has a .whichtorch, with an index of stand-in wheels in their settings."""

    folder: Path
    environ: dict[str, str]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "whichtorch", *arguments]

    def run(self, *arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Give a command with its options, and wait for its end."""
        return forked.run(arguments, self.folder, self.environ | (environ or {}), PATIENCE)

    def run_anew(self, *arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Give a command to a fresh process, for tests of where the program is imported from."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environ | (environ or {}),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Give a command with its options; what it says goes to output.txt."""
        with (self.folder / "output.txt").open("wb") as output:
            return subprocess.Popen(
                self.command(*arguments), cwd=self.folder, env=self.environ, stdout=output, stderr=output
            )

    def script(self, name: str, source: str) -> str:
        """Write a script that, at NOTE, notes that it ran in a file beside it."""
        path = self.folder / name
        noting = f"with open({str(path) + '.runs'!r}, 'a') as file: file.write('run\\n')\n"
        path.write_text(source.replace("NOTE\n", noting))
        return name

    def runs(self, name: str) -> int:
        path = self.folder / f"{name}.runs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def records(self, home: str = ".whichtorch") -> list[dict[str, object]]:
        files = sorted((self.folder / home / "runs").glob("*/records.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def no_torch(tmp_path: Path) -> Path:
    """Return the folder that the index serves, without a torch yet."""
    build_companion(tmp_path / "wheels", "numpy", "2.2.0")
    return tmp_path / "wheels"


def old_and_new(folder: Path) -> Path:
    """Fill a folder that an index serves with an old torch, in which a fault is, and a new one; return it."""
    build_companion(folder, "numpy", "2.2.0")
    build_wheel(folder, "9.1.0", behaviour="old")
    build_wheel(folder, "9.2.0", behaviour="new")
    return folder


def two_stacks(folder: Path, *behaviours: str) -> Path:
    """Fill a folder that an index serves with two releases of torch that differ in what comes with them; return it."""
    old, new = behaviours or ("", "")
    build_wheel(folder, "9.1.0", behaviour=old, requires=("filelock", "cublas==12.1"))
    build_wheel(folder, "9.2.0", behaviour=new, requires=("filelock", "cublas==13.1"))
    for name, versions in {
        "numpy": ("2.2.6", "2.3.0"),
        "setuptools": ("80.0.0", "80.1.0", "80.2.0"),
        "filelock": ("3.0", "3.1"),
        "cublas": ("12.1", "13.1"),
        "idna": ("3.6", "3.7"),
        "sympy": ("1.12", "1.13"),
    }.items():
        for version in versions:
            build_companion(folder, name, version)
    return folder


def new_user(folder: Path, index: Index) -> User:
    """Return somebody who has no settings but these, with a home and a folder of their own below `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "WHICHTORCH_"))}
    settings = {
        "HOME": str(folder / "empty"),
        "PYTHONPATH": str(ROOT),
        "UV_DEFAULT_INDEX": index.url,
        "WHICHTORCH_PYTORCH_INDEX": "http://127.0.0.1:9/whl",
        "COLUMNS": "160",
    }
    (folder / "user" / ".whichtorch").mkdir(parents=True)  # a project that keeps its state in its own folder
    return User(folder / "user", kept | settings)


def wait_for(condition: Callable[[], bool]) -> None:
    assert until(condition), "it never came true"


def alive_in(folder: Path) -> list[str]:
    """Return the command lines of processes that name a folder."""
    commands = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(folder) in word for word in words):
            commands.append(" ".join(words))
    return commands
