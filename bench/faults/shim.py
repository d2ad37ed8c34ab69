"""The library that lets calls fail, built where there is a compiler."""

import shutil
import subprocess
import threading
from pathlib import Path

from bench.faults.fault import NotHereError

_GUARD = threading.Lock()


def preloaded(folder: Path) -> dict[str, str]:
    """Return the variable that preloads the library, built once in a folder."""
    library = folder / "failing_calls.so"
    if shutil.which("gcc") is None:
        raise NotHereError("there is no gcc")
    with _GUARD:
        if not library.exists():
            source = Path(__file__).with_name("failing_calls.c")
            subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}
