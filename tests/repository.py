"""A little git repository of a stand-in torch, and a Python that its commits are built into."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.wheels import source_files

# the user's own settings, such as a signing key, must not matter
_SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}
BUILDS = 'rm -rf "$SITE/torch" && cp -r torch "$SITE/torch"\n'
SKIPS = "exit 125\n"
FAILS = "echo 'error: no rule to make libtorch' >&2; exit 2\n"


@dataclass
class Repository:
    """A checkout whose commits each hold a torch with a behaviour, and how it is built."""

    folder: Path
    commits: list[str] = field(default_factory=list)  # in the order in which they were made

    @classmethod
    def at(cls, folder: Path, *, with_python: bool = True) -> Repository:
        """Make an empty repository, with a virtual environment that is not tracked where commits are to be built."""
        folder.mkdir(parents=True)
        made = cls(folder)
        made.git("init", "--quiet", "--initial-branch=main")
        (folder / ".git" / "info" / "exclude").write_text(".venv/\n")
        if with_python:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv")], check=True)
        return made

    def command(self, first: str = "true") -> str:
        """Return what builds a commit, after noting that it does and after something else."""
        site = next((self.folder / ".venv" / "lib").glob("python*/site-packages"))
        return f"git rev-parse HEAD >> {self.builds}; {first}; SITE={site} sh build.sh"

    @property
    def builds(self) -> Path:
        """The file in which builds are noted."""
        return self.folder.parent / "builds.txt"

    @property
    def built(self) -> list[str]:
        """The commits that a build was tried of, each as often as it was."""
        return self.builds.read_text().split() if self.builds.exists() else []

    def git(self, *arguments: str) -> str:
        # the same hashes every time: git's choice among neighbours of what is skipped depends on them
        date = f"2026-01-01T00:{len(self.commits):02}:00Z"
        ended = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env=os.environ | _SETTINGS | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date},
            capture_output=True,
            text=True,
            check=True,
        )
        return ended.stdout.strip()

    def commit(self, behaviour: str, build: str = BUILDS) -> str:
        """Commit a torch that behaves so, and return the commit."""
        number = len(self.commits)
        files = source_files(f"9.0.0a{number}", behaviour) | {"build.sh": build}
        for path, text in files.items():
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", f"change {number}")
        return self._made()

    def branch_off(self, number: int, branch: str) -> None:
        """Go on from an earlier commit."""
        self.git("checkout", "--quiet", "-b", branch, self.commits[number])

    def merge(self, branch: str) -> str:
        """Merge a branch, keeping what is checked out where both changed it."""
        self.git("merge", "--quiet", "--no-ff", "-s", "ours", "-m", f"merge {branch}", branch)
        return self._made()

    def _made(self) -> str:
        self.commits.append(self.git("rev-parse", "HEAD"))
        return self.commits[-1]

    @property
    def state(self) -> tuple[str, str]:
        """The branch that is checked out, and what git says is not as it should be."""
        return self.git("rev-parse", "--abbrev-ref", "HEAD"), self.git("status", "--porcelain")
