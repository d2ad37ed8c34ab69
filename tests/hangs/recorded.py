"""Recordings of real programs that hang: what was seen of their processes, beside the program itself.

`tests/hangs/hangs/NAME.py` is a program, `tests/hangs/recordings/NAME.json` what a real run of it showed, and
its line of `tests/hangs/sentences.txt` what must be said of that. To record programs anew, with the Python of an
environment that has torch and numpy:

    python -m tests.hangs.recorded INTERPRETER [NAME ...]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whichtorch.hangs import stack_folder
from whichtorch.hangs.hang_diagnosis import HangDiagnosis, diagnose
from whichtorch.hangs.source_text import owner_class
from whichtorch.hangs.stacks import Frame, Process
from whichtorch.hangs.waits import is_openmp
from whichtorch.model import AttemptEvidence

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
PROGRAMS, RECORDINGS, SENTENCES = HERE / "hangs", HERE / "recordings", HERE / "sentences.txt"
LIMIT = "30"  # seconds; what can be seen to be stuck is stopped earlier
STDERR = 4000  # characters of its end that are kept


@cache
def picture(name: str) -> tuple[tuple[Process, ...], str]:
    """Return the processes of a recording, and what the program wrote to stderr."""
    recording = json.loads((RECORDINGS / f"{name}.json").read_text().replace("PROGRAMS", str(PROGRAMS)))
    return tuple(_process(row) for row in recording["processes"]), str(recording["stderr"])


@cache
def diagnosed(name: str) -> HangDiagnosis:
    """Return what is said today of a recording."""
    processes, stderr = picture(name)
    return diagnose(processes, stderr=stderr)


def sentence(name: str) -> str:
    """Return the kind and the sentence of a recording, as `sentences.txt` has them."""
    found = diagnosed(name)
    return f"{found.kind}: {found.summary}".replace(str(PROGRAMS), "PROGRAMS")


def _process(row: dict[str, Any]) -> Process:
    return Process.model_validate(row, extra="ignore")


def _row(process: Process) -> dict[str, Any]:
    row: dict[str, Any] = process.model_dump(mode="json", exclude_defaults=True)
    for thread in row.get("threads", ()):
        named = [
            frame
            for frame in thread.get("frames", ())
            if frame["function"] != "???" or is_openmp(Frame.model_validate(frame))
        ]
        thread["frames"] = named
        for frame in thread["frames"]:
            if any(part in frame.get("library", "") for part in ("lib-dynload", "libpython")):
                frame.pop("file", None)  # where Python was built
            if frame["language"] == "python":  # libraries differ between machines: their classes are kept
                shown = Frame.model_validate(frame)
                owner = owner_class(shown)
                frame["function"] = f"{owner}.{shown.method}" if owner else shown.function
    return row


def record(names: Sequence[str], interpreter: str) -> None:
    """Run programs with the tool, and keep what their stacks showed."""
    scripts = [str(PROGRAMS / f"{name}.py") for name in names]
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "whichtorch", "matrix", "--interpreter", interpreter, *scripts]
        environ = os.environ | {"WHICHTORCH_HOME": home}
        subprocess.run(
            [*command, "--timeout", LIMIT], env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        folders = {str(PROGRAMS): "PROGRAMS", home: "STATE", str(Path(interpreter).parent.parent): "ENV"}
        folders[str(Path(interpreter).resolve().parent.parent)] = "PYTHON"
        for line in next(Path(home).glob("runs/*/records.jsonl")).read_text().splitlines():
            row = json.loads(line)
            if stacks := row["attempt"].get("stacks"):
                _keep(Path(row["scenario"]).stem, row["attempt"], next(Path(home).glob(f"**/{stacks}")), folders)
            else:
                print(f"{row['scenario']} has not hung: {row['attempt']['outcome']}", file=sys.stderr)


def _keep(name: str, attempt: dict[str, Any], folder: Path, folders: dict[str, str]) -> None:
    """Write the recording of a program from the stacks of its last attempt, with short names for folders."""
    stall = AttemptEvidence.model_validate(attempt.get("evidence") or {}).stall
    processes = stack_folder.read_folder(folder, stall)
    stderr = (folder.parent / "stderr.txt").read_text(errors="replace")[-STDERR:]
    text = json.dumps({"processes": list(map(_row, processes)), "stderr": stderr}, separators=(",", ":"))
    for path, short in folders.items():
        text = text.replace(path, short).replace(path.replace(str(Path.home()), "~"), short)
    RECORDINGS.mkdir(exist_ok=True)
    (RECORDINGS / f"{name}.json").write_text(text.replace('{"pid"', '\n{"pid"') + "\n")


if __name__ == "__main__":
    programs = sys.argv[2:] or sorted(path.stem for path in PROGRAMS.glob("*.py"))
    record(programs, sys.argv[1])
    for program_name in programs:
        print(f"{program_name}: {sentence(program_name)}", flush=True)
