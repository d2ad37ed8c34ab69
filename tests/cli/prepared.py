"""Environments that are made once, and copied into the state folder of each user who needs the same."""

import hashlib
import shutil
from pathlib import Path

from filelock import FileLock

from tests.cli.shell import User, new_user
from tests.wheels import serve
from whichtorch.environments.installation import InstallFolder


def prepare(user: User, wheels: Path, originals: Path, *options: str) -> None:
    """Give a user the environments that options of `matrix` ask for: copies of originals that are made once."""
    contents = [(wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()) for wheel in sorted(wheels.glob("*.whl"))]
    folder = originals / hashlib.sha256(repr((contents, options)).encode()).hexdigest()[:16]
    originals.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):  # other workers need it, too
        if not (folder / "made").exists():
            _make(folder, wheels, options)
    for original in sorted((folder / "user" / ".whichtorch" / "envs").glob("*/installation.json")):
        _copy(original.parent, user.folder / ".whichtorch" / "envs" / original.parent.name)


def _make(folder: Path, wheels: Path, options: tuple[str, ...]) -> None:
    with serve(wheels) as index:
        maker = new_user(folder, index)
        ended = maker.run("matrix", maker.script("empty.py", ""), *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (folder / "made").touch()


def _copy(original: Path, copy: Path) -> None:
    """Copy an installation, whose files name its own folder here and there."""
    shutil.copytree(original, copy, symlinks=True, ignore=shutil.ignore_patterns("logs", "__pycache__"))
    for file in copy.rglob("*"):
        if file.is_file() and not file.is_symlink() and str(original).encode() in (content := file.read_bytes()):
            file.write_bytes(content.replace(str(original).encode(), str(copy).encode()))
    folder = InstallFolder(copy)
    installation = folder.installation()
    assert installation is not None
    programs = len(list((folder.venv / "bin").iterdir()))  # they name the folder, so their sizes have changed
    folder.record.write_text(installation.model_copy(update={"damage": programs}).model_dump_json())
