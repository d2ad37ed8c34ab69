"""Files and folders that are there whole or not at all, whoever reads them and whatever ends their writer."""

from __future__ import annotations

import math
import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

Form = TypeVar("Form")
_WRITER = re.compile(r"\.(\d+)-\d+$")  # the process and the thread that write a file


def write_atomic(file: Path, content: str | bytes) -> None:
    """Write a file under a hidden name, then rename it: no reader sees a part of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def remove_partial(home: Path) -> None:
    """Remove what killed writers have left of files up to two folders below a folder."""
    import psutil  # every command starts with this module, and few remove anything

    for partial in (path for depth in ("", "*/", "*/*/") for path in home.glob(f"{depth}.*.*-*")):
        if (writer := _WRITER.search(partial.name)) and not psutil.pid_exists(int(writer[1])):
            partial.unlink(missing_ok=True)


def read_json(file: Path, form: type[Form], max_age: float = math.inf) -> Form | None:
    """Return what a file of JSON holds.

    None where it is missing, cut short, of another version of the tool, or older than `max_age` seconds.
    """
    try:
        if time.time() - file.stat().st_mtime > max_age:
            return None
        return TypeAdapter(form).validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def is_regular(path: Path) -> bool:
    """Return whether a path is a file or a folder itself: a link may lead anywhere, and a pipe may never end."""
    return not path.is_symlink() and (path.is_file() or path.is_dir())


def remove_tree(path: Path) -> None:
    """Remove a folder. It is moved aside first, so that a killed removal leaves no part of it where it was."""
    if path.exists() or path.is_symlink():
        path.rename(path.with_name(f".removed-{path.name}-{os.getpid()}-{time.monotonic_ns()}"))
    for aside in path.parent.glob(".removed-*"):  # those of killed removals, too
        shutil.rmtree(aside, ignore_errors=True)


def text_of(path: Path) -> str:
    """Return the text of a file that a run wrote, "" where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
