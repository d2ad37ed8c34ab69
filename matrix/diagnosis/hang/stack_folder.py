"""Read the folder that `process.evidence.capture` fills: raw stacks -> one picture of the processes -> diagnosis."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from matrix.diagnosis import stacks
from matrix.diagnosis.collectors import kernel_text
from matrix.diagnosis.dispatch import operator_table
from matrix.diagnosis.hang.hang_diagnosis import diagnose
from matrix.diagnosis.hang.wording import diagnosis_lines, place_lines, stack_texts
from matrix.model import Diagnosis, StuckThread, WaitEdge
from matrix.process.evidence.capture import COLLECTORS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matrix.diagnosis.dispatch.operator_table import Table
    from matrix.diagnosis.hang.hang_diagnosis import HangDiagnosis
    from matrix.diagnosis.stacks import Process
    from matrix.model import Environment, ThreadWait
    from matrix.process.evidence.capture import Collector

READABLE = "diagnosis.txt"  # beside the raw stacks, for people
STACKS_KEPT = 16  # threads whose stacks a record holds; `READABLE` has all
_LARGEST = 2**24  # bytes of one file that are read


def read_folder(folder: Path, stall: Sequence[ThreadWait] = ()) -> tuple[Process, ...]:
    """Return one picture of what a folder of raw stacks and the evidence of a stall show, the leader first."""
    pictures = []
    for collector in sorted(COLLECTORS, key=lambda collector: collector.rank):
        parse = parser(collector)
        for path in sorted(folder.glob(collector.file.format(pid="*"))):
            pid = path.name.partition(".")[0]
            if pid.isdigit() or not collector.is_per_process:
                pictures.append(parse(_text(path), int(pid) if pid.isdigit() else 0))
        if not collector.is_per_process:  # the kernel's picture; the supervisor's is the next best
            pictures.append(kernel_text.from_stall(stall))
    return stacks.merge(*pictures)


def parser(collector: Collector) -> Callable[[str, int], tuple[Process, ...]]:
    """Return the function that reads what a collector writes."""
    module, _, function = collector.parser.partition(":")
    parse: Callable[[str, int], tuple[Process, ...]] = getattr(
        import_module(f"matrix.diagnosis.collectors.{module}"), function
    )
    return parse


def tables_of(environment: Environment) -> dict[str, Table]:
    """Return the dispatch tables that an environment's fingerprint holds, by operator."""
    texts = environment.fingerprint.dispatch
    if not isinstance(texts, dict):
        return {}
    return {operator: operator_table.parse(str(text), operator) for operator, text in texts.items()}


def diagnose_folder(
    folder: Path, tables: Mapping[str, Table] | None = None, stderr: str = "", stall: Sequence[ThreadWait] = ()
) -> tuple[HangDiagnosis, tuple[Process, ...]] | None:
    """Return what the stacks in a folder show, and write it there for people; None where it holds none.

    `stall` is the supervisor's evidence, if any: it shows a wait for the GIL where no collector may look.
    """
    processes = read_folder(folder, stall)
    if not any(thread.frames for process in processes for thread in process.threads):
        return None
    diagnosis = diagnose(processes, tables=tables, stderr=stderr)
    lines = [*diagnosis_lines(diagnosis, processes), ""]
    (folder / READABLE).write_text("\n".join(lines), encoding="utf-8", errors="replace")
    return diagnosis, processes


def stored(diagnosis: HangDiagnosis, processes: Sequence[Process], seconds: float) -> Diagnosis:
    """Return what a record keeps of a diagnosis; `seconds` is how long taking the stacks took."""
    place = diagnosis.place
    texts, left_out = stack_texts(diagnosis, processes, STACKS_KEPT)
    return Diagnosis(
        kind=diagnosis.kind,
        summary=diagnosis.summary,
        stage=place.stage if place else None,
        place=place.words if place else None,
        operator=diagnosis.operator,
        key=diagnosis.key,
        cycle=tuple(WaitEdge.model_validate(edge.model_dump(exclude_defaults=True)) for edge in diagnosis.cycle),
        closed=diagnosis.closed,
        stuck=StuckThread(pid=diagnosis.stuck_pid, tid=diagnosis.stuck_thread) if diagnosis.stuck_pid else None,
        frames=diagnosis.signature_frames,
        seconds=round(seconds, 2),
        path="\n".join(place_lines(place)) if place else "",
        stacks=texts,
        left_out=left_out,
    )


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode(errors="replace")
    except OSError:
        return ""
