"""Read the folder that `process.evidence.capture` fills: raw stacks -> one picture of the processes -> diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matrix.diagnosis import stacks
from matrix.diagnosis.collectors import faulthandler_text, gdb, kernel_text, pyspy, pystack
from matrix.diagnosis.dispatch import operator_table
from matrix.diagnosis.hang.hang_diagnosis import Diagnosis, diagnose
from matrix.diagnosis.hang.kinds import HangKind
from matrix.diagnosis.hang.wording import diagnosis_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matrix.diagnosis.dispatch.operator_table import Table
    from matrix.diagnosis.stacks import Process
    from matrix.model import Environment

READABLE = "diagnosis.txt"  # beside the raw stacks, for people
_LARGEST = 2**24  # bytes of one file that are read
# Kernel first: of each fact the first that knows it is believed, and it alone looked before anything was disturbed.
_PARSERS: tuple[tuple[str, Callable[[str, int], tuple[Process, ...]]], ...] = (
    ("pystack.txt", pystack.parse),
    ("pyspy.json", lambda text, _: pyspy.parse(text)),
    ("gdb.txt", gdb.parse),
    ("faulthandler.txt", faulthandler_text.parse),
)
_RUNNING = {HangKind.SPIN_PYTHON, HangKind.SPIN_NATIVE, HangKind.SLOW_COMPILE}


def read_folder(folder: Path, stall: Sequence[Mapping[str, Any]] = ()) -> tuple[Process, ...]:
    """Return one picture of all that a folder of raw stacks holds, the leader first, and of the evidence of a stall."""
    pictures = [kernel_text.parse(_text(folder / "kernel.txt")), kernel_text.from_stall(stall)]
    for suffix, parse in _PARSERS:
        for path in sorted(folder.glob(f"*.{suffix}")):
            pid = path.name.partition(".")[0]
            if pid.isdigit():
                pictures.append(parse(_text(path), int(pid)))
    return stacks.merge(*pictures)


def tables_of(environment: Environment) -> dict[str, Table]:
    """Return the dispatch tables that an environment's fingerprint holds, by operator."""
    texts = environment.fingerprint.dispatch
    if not isinstance(texts, dict):
        return {}
    return {operator: operator_table.parse(str(text), operator) for operator, text in texts.items()}


def diagnose_folder(
    folder: Path,
    tables: Mapping[str, Table] | None = None,
    stderr: str = "",
    stall: Sequence[Mapping[str, Any]] = (),
) -> Diagnosis | None:
    """Return what the stacks in a folder show, and write it there for people; None where it holds none.

    `stall` is the supervisor's evidence, if any: it can tell a wait for the GIL where no collector may look.
    """
    processes = read_folder(folder, stall)
    if not any(thread.frames for process in processes for thread in process.threads):
        return None
    diagnosis = diagnose(processes, tables=tables, stderr=stderr)
    lines = [*diagnosis_lines(diagnosis, processes), ""]
    (folder / READABLE).write_text("\n".join(lines), encoding="utf-8", errors="replace")
    return diagnosis


def fields_of(diagnosis: Diagnosis, seconds: float) -> dict[str, Any]:
    """Return what a record keeps of a diagnosis; `seconds` is how long taking the stacks took."""
    place = diagnosis.place
    return {
        "kind": str(diagnosis.kind),
        "summary": diagnosis.summary,
        "stage": str(place.stage) if place else None,
        "place": place.words if place else None,
        "operator": diagnosis.operator,
        "key": diagnosis.key,
        "cycle": [edge.model_dump(mode="json", exclude_defaults=True) for edge in diagnosis.cycle],
        "closed": diagnosis.closed,
        "stuck": {"pid": diagnosis.stuck_pid, "tid": diagnosis.stuck_thread} if diagnosis.stuck_pid else None,
        "frames": list(diagnosis.signature_frames),
        "seconds": round(seconds, 2),
    }


def signature_of(diagnosis: Diagnosis) -> str | None:
    """Return the signature of a hang where it is stuck; a spin's frames vary, its samples tell better."""
    if diagnosis.kind in _RUNNING or not diagnosis.signature_frames:
        return None
    return "stuck in " + " < ".join(diagnosis.signature_frames)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode(errors="replace")
    except OSError:
        return ""
