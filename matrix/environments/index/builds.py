"""Named builds: which index a torch wheel comes from.

The PyTorch index publishes one folder per build. It is named to uv as an index of its own, together with
the exact version that the listing gave: the same for the folders that uv's --torch-backend knows, for
newer folders, for nightlies and for mirrors.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.environments.index.sources import local_folder, without_credentials
from matrix.environments.whole_files import write_whole
from matrix.errors import UsageError
from matrix.model import Build

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PYTORCH_INDEX = "https://download.pytorch.org/whl"
PYTORCH_INDEX_VARIABLE = "WHICHTORCH_PYTORCH_INDEX"  # names a mirror of it, or a test's server
ANSWER_TIMEOUT = 3.0  # seconds the PyTorch index has to answer, DNS included, before `auto` does without
CHOICE_AGE = 86400  # seconds `auto` believes an answer: reruns of a day meet the same environments
GPU_DEVICES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, WSL
GPU_TOOLS = ("nvidia-smi", "rocm-smi")
_FOLDER = re.compile(r"(nightly-)?(cpu|xpu|cu\d{2,3}|rocm\d+(\.\d+){0,2})")
_EXAMPLES = ("auto", "pypi", "cpu", "xpu", "cu118", "cu126", "cu128", "cu130", "rocm6.4", "nightly-cpu")


def build_named(name: str, custom: Mapping[str, Build], environ: Mapping[str, str] = os.environ) -> Build:
    """Return the build called `name`; those of the matrix file come first. Raises UsageError with near misses."""
    if name in custom:
        return custom[name]
    if name == "pypi":
        return Build(name=name)
    base = environ.get(PYTORCH_INDEX_VARIABLE, PYTORCH_INDEX).rstrip("/")
    if _FOLDER.fullmatch(name):
        return Build(name=name, index_url=f"{base}/{name.replace('-', '/')}", nightly=name.startswith("nightly"))
    near = difflib.get_close_matches(name, [*custom, *_EXAMPLES], n=3)
    suggestion = f"did you mean {' or '.join(near)}? " if near else ""
    known = ["auto", "pypi", "cpu", "cuNNN", "rocmN.M", "xpu", "nightly-cpu", "nightly-cuNNN", *custom]
    raise UsageError(f"no build is called {name!r}", hint=f"{suggestion}known are {', '.join(known)}")


def kept_folder(home: Path, build: Build) -> Path | None:
    """Return where wheels of a build are kept; None for one whose wheels do not vanish, or lie in a folder."""
    if not build.nightly or build.index_url is None or local_folder(build.index_url) is not None:
        return None
    return home / "wheels" / re.sub(r"[^\w.+-]", "_", build.name)


def choose_auto(
    cache: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    visible_gpu: Callable[[], str | None] | None = None,
    index_answers: Callable[[str], bool] | None = None,
) -> tuple[Build, str]:
    """Return what `auto` means on this machine, and why, in words.

    `cpu` where no GPU is visible and the PyTorch index answers, else `pypi`. The answer of the index is
    kept in the folder `cache` for a day.
    """
    if gpu := (visible_gpu or find_gpu)():
        return build_named("pypi", {}, environ), f"a GPU is visible ({gpu})"
    cpu = build_named("cpu", {}, environ)
    assert cpu.index_url is not None
    shown = without_credentials(cpu.index_url)
    if _kept_answer(cpu.index_url, cache, index_answers or answers):
        return cpu, f"no GPU is visible, and {shown} answers"
    reason = f"no GPU is visible, but {shown} gave no answer within {ANSWER_TIMEOUT:g} s"
    return build_named("pypi", {}, environ), reason


def find_gpu() -> str | None:
    """Return what shows that a GPU is there, None where nothing does."""
    devices = (path for path in GPU_DEVICES if Path(path).exists())
    return next(devices, None) or next(filter(shutil.which, GPU_TOOLS), None)


def answers(url: str) -> bool:
    """Return whether an index answers at all within ANSWER_TIMEOUT, whatever it says."""
    answered = threading.Event()

    def ask() -> None:
        try:
            request = urllib.request.Request(url.rstrip("/") + "/torch/", method="HEAD")  # noqa: S310  the user's own index
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT):  # noqa: S310
                answered.set()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500:
                answered.set()
        except (OSError, ValueError):
            pass

    # in a thread of its own: a name server that does not answer cannot be given a timeout
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_TIMEOUT)
    return answered.is_set()


def _kept_answer(url: str, cache: Path | None, ask: Callable[[str], bool]) -> bool:
    """Return what the index answered within the last day, asking it where that is not known."""
    if cache is None:
        return ask(url)
    file, shown = cache / "auto.json", without_credentials(url)
    with suppress(OSError, ValueError, KeyError):
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["place"] == shown and time.time() - file.stat().st_mtime < CHOICE_AGE:
            return bool(kept["answers"])
    answer = ask(url)
    write_whole(file, json.dumps({"place": shown, "answers": answer}))
    return answer
