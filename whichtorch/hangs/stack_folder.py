"""Read a folder of raw stacks: one picture of the processes -> its diagnosis -> what a record and people get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.hangs import stack_readers, stacks
from whichtorch.hangs.disagreement import number_ranges
from whichtorch.hangs.dispatch import call_path
from whichtorch.hangs.hang_diagnosis import HangDiagnosis, diagnose
from whichtorch.hangs.narration import cycle_sentences
from whichtorch.hangs.stacks import Process, Thread, number_on_host
from whichtorch.hangs.waits import is_idle_worker
from whichtorch.model import Diagnosis, Environment, StuckThread, ThreadWait, WaitEdge
from whichtorch.process.evidence.capture import COLLECTORS, KERNEL, Collector

if TYPE_CHECKING:
    from whichtorch.hangs.dispatch.call_path import Place, Table

READABLE = "diagnosis.txt"  # beside the raw stacks, for people
STACKS_KEPT = 16  # stacks that a record holds; `READABLE` has all
DEPTH = 20  # frames of a thread that are written; the rest is counted
_LARGEST = 2**24  # bytes of one file that are read


Member = tuple["Process", "Thread"]


def read_folder(folder: Path, stall: Sequence[ThreadWait] = ()) -> tuple[Process, ...]:
    """Return one picture of what a folder of raw stacks and the evidence of a stall show, the leader first."""
    pictures = []
    for collector in sorted(COLLECTORS, key=lambda collector: collector.rank):
        for path in sorted(folder.glob(collector.file.format(pid="*"))):
            pid = path.name.partition(".")[0]
            if pid.isdigit() or not collector.is_per_process:
                pictures.append(parser(collector)(_text(path), int(pid) if pid.isdigit() else 0))
        if collector is KERNEL:  # the supervisor's picture is the next best
            pictures.append(stack_readers.from_stall(stall))
    return stacks.with_native_frames(stacks.merge(*pictures))


def parser(collector: Collector) -> Callable[[str, int], tuple[Process, ...]]:
    """Return the function that reads what a collector writes."""
    parse: Callable[[str, int], tuple[Process, ...]] = getattr(stack_readers, collector.parser)
    return parse


def tables_of(environment: Environment) -> dict[str, Table]:
    """Return the dispatch tables that an environment's fingerprint holds, by operator."""
    texts = environment.fingerprint.dispatch
    rows = texts.items() if isinstance(texts, dict) else ()
    return {operator: call_path.parse_table(str(text), operator) for operator, text in rows}


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
    write_readable(folder, diagnosis, processes)
    return diagnosis, processes


def write_readable(folder: Path, diagnosis: HangDiagnosis, processes: Sequence[Process]) -> None:
    """Write a diagnosis into the folder of its stacks, for people."""
    text = "\n".join([*diagnosis_lines(diagnosis, processes), ""])
    (folder / READABLE).write_text(text, encoding="utf-8", errors="replace")


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


def diagnosis_lines(
    diagnosis: HangDiagnosis, processes: Sequence[Process] = (), most: int | None = None
) -> Iterator[str]:
    """Yield the kind, who waits for whom, the path in the dispatcher, and `most` stacks, the stuck thread's first."""
    yield f"{diagnosis.kind}: {diagnosis.summary}"
    if diagnosis.cycle:
        yield from ("", "who waits for whom" + (" (nothing in it can ever go on)" if diagnosis.closed else ""))
        for edge, sentence in zip(diagnosis.cycle, cycle_sentences(diagnosis.cycle), strict=True):
            yield f"  {sentence}" + (f"  [{edge.evidence}]" if edge.evidence else "")
    if diagnosis.place:
        yield from ("", *place_lines(diagnosis.place))
    stacks, left_out = stack_texts(diagnosis, processes, most)
    for text in filter(None, (*stacks, left_out, rank_line(processes, diagnosis.ranks))):
        yield from ("", *text.split("\n"))


def place_lines(place: Place) -> Iterator[str]:
    """Yield the path of a call, one stage a line: status, stage, what was seen, what the table expects."""
    keys = f", key set {', '.join(place.keys)}" if place.keys else ""
    under = f", under {' > '.join(place.enclosing)}" if place.enclosing else ""
    yield f"path of {place.operator or 'the call'}, by {place.evidence}{keys}{under}"
    status = max(len(step.status) for step in place.steps)
    stage = max(len(step.stage) for step in place.steps)
    for step in place.steps:
        line = f"  {step.status:<{status}}  {step.stage:<{stage}}  {step.seen}".rstrip()
        yield line + (f"  (expected: {step.expected})" if step.expected else "")
    if place.note:
        yield f"  {place.note}"
    if place.missing:
        yield "  expected prints that did not come:"
        yield from (f"    {name}" for name in place.missing)


def stack_texts(
    diagnosis: HangDiagnosis, processes: Sequence[Process], most: int | None = None
) -> tuple[tuple[str, ...], str]:
    """Return `most` stacks, or all, the stuck thread's first; and how many threads are left out."""
    stuck = (diagnosis.stuck_pid, diagnosis.stuck_thread)
    threads = [(process, thread) for process in processes for thread in process.threads]
    threads.sort(key=lambda pair: (pair[0].pid, pair[1].tid) != stuck)
    busy = [(process, thread) for process, thread in threads if not is_idle_worker(thread)]
    idle = len(threads) - len(busy)
    groups: dict[tuple[object, ...], list[Member]] = {}
    for process, thread in busy:
        groups.setdefault(_likeness(thread), []).append((process, thread))
    alike = sorted(groups.values(), key=lambda group: not group[0][1].frames)  # those that tell nothing last
    more = sum(map(len, alike[most:])) if most is not None else 0
    counts = [f"{more} more"] if more else []
    counts += [f"{idle} idle worker{'s' if idle > 1 else ''} of a pool"] if idle else []
    stacks = tuple("\n".join([_heading(group, diagnosis.ranks), *_frame_lines(group[0][1])]) for group in alike[:most])
    return stacks, f"and {', '.join(counts)}" if counts else ""


def _likeness(thread: Thread) -> tuple[object, ...]:
    """Return what is the same of threads whose stacks are alike."""
    places = tuple((frame.method, frame.where) for frame in thread.frames)  # not each collector names the class
    return (places, thread.has_gil, thread.wants_gil, thread.is_running) if places else (_facts(thread), thread.name)


def _facts(thread: Thread) -> tuple[str, ...]:
    facts = ["has the GIL"] if thread.has_gil else []
    facts += ["waits for the GIL"] if thread.wants_gil else []
    facts += [f"state {thread.state}"] if thread.state else []
    facts += [f"waits in {thread.kernel.wchan}"] if thread.kernel and thread.kernel.wchan else []
    return tuple(facts)


def _heading(group: Sequence[Member], ranks: dict[int, int]) -> str:
    """Return whose stack it is, and what is known of all who share it."""
    names = {thread.name for _, thread in group}
    common = [fact for fact in _facts(group[0][1]) if all(fact in _facts(thread) for _, thread in group)]
    facts = [*(names if len(names) == 1 else ()), *common]
    known = f" ({', '.join(filter(None, facts))})" if any(facts) else ""
    owners = {process.pid: process for process, _ in group}
    process, thread = group[0]
    rank = f"rank {ranks[process.pid]}, " if process.pid in ranks else ""
    host = f" on {process.host}" if process.host else ""
    if len(group) == 1:
        of = f" of process {number_on_host(process.pid)}" if process.pid != thread.tid else ""
        return f"{rank}thread {number_on_host(thread.tid) or hex(thread.ident or 0)}{of}{host}{known}"
    if len(owners) == 1:
        numbers = number_ranges(number_on_host(thread.tid) for _, thread in group)
        return f"{rank}threads {numbers} of process {number_on_host(process.pid)}{host}{known}"
    each = "a thread" if len(owners) == len(group) else f"{len(group)} threads"
    if all(thread.tid == process.pid for process, thread in group):
        each = "the main thread"
    return f"{_owners(list(owners.values()), ranks)}, {each}{' of each' if len(owners) == len(group) else ''}{known}"


def _owners(processes: Sequence[Process], ranks: dict[int, int]) -> str:
    """Return processes as people name them: "ranks 0-2", or "processes 11-13, 15-16 on host2"."""
    known = [ranks[process.pid] for process in processes if process.pid in ranks]
    of_hosts: dict[str, list[int]] = {}
    for process in processes:
        if process.pid not in ranks:
            of_hosts.setdefault(process.host, []).append(number_on_host(process.pid))
    others = [number_ranges(own) + (f" on {host}" if host else "") for host, own in of_hosts.items()]
    words = [f"ranks {number_ranges(known)}" if len(known) > 1 else f"rank {known[0]}"] if known else []
    words += [f"process{'es' if sum(map(len, of_hosts.values())) > 1 else ''} {', '.join(others)}"] if others else []
    return " and ".join(words)


def rank_line(processes: Sequence[Process], ranks: dict[int, int]) -> str:
    """Return which processes the ranks are; "" where there are none."""
    known = [process for process in processes if process.pid in ranks]
    of_hosts: dict[str, list[str]] = {}
    for process in sorted(known, key=lambda process: ranks[process.pid]):
        of_hosts.setdefault(process.host, []).append(f"{ranks[process.pid]}: {number_on_host(process.pid)}")
    parts = [", ".join(own) + (f" on {host}" if host else "") for host, own in of_hosts.items()]
    return f"processes of the ranks: {'; '.join(parts)}" if known else ""


def _frame_lines(thread: Thread) -> Iterator[str]:
    """Yield a thread's stack, innermost frame first."""
    unnamed = 0
    for frame in thread.frames[:DEPTH]:
        if not frame.is_named:
            unnamed += 1
            continue
        if unnamed:
            yield f"    … {unnamed} without a name"
            unnamed = 0
        yield f"    {frame.words}"
    left = len(thread.frames[DEPTH:]) + unnamed
    if left:
        yield f"    … {left} more"
