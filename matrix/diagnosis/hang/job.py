"""The ranks of a distributed job among the processes of a tree."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from matrix.model import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from matrix.diagnosis.hang.activity import ThreadState
    from matrix.diagnosis.stacks import Process

_RANKS = ("rank", "global_rank", "world_rank", "rank_id", "my_rank")  # variables, the surest first
_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL = ("local_rank",)  # on one machine only: the same numbers on each
_SIZES = ("world_size", "WORLD_SIZE", "nprocs", "num_ranks", "n_ranks")
_SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
_SPAWNED = re.compile(r"(?:^|/)torch/multiprocessing/spawn\.py$")
JOINT = {Waiting.COLLECTIVE, Waiting.RENDEZVOUS}


def find_ranks(processes: Sequence[Process], states: Sequence[ThreadState]) -> dict[int, int]:
    """Return the rank of each process of a distributed job, by pid; none where no thread waits for other ranks.

    Members are the processes in which a thread waits for others, and those that were started like them. The ranks are
    told by variables of the program, by the environment, or by the order in which torch.multiprocessing started them.
    """
    waiting = {state.pid for state in states if state.awaits in JOINT}
    if not waiting:
        return {}
    parents = {process.pid: process.parent for process in processes}
    siblings = {parents.get(pid) for pid in waiting} - {None}
    started = {process.pid for process in processes if _is_started_as_rank(process, processes, waiting)}
    members = [
        process.pid
        for process in processes
        if process.pid in waiting | started
        or (parents.get(process.pid) in siblings and len(waiting) > 0 and _is_like(process, processes, waiting))
    ]
    for source in (_variable, _environ, _local_variable, _position):
        found = {pid: source(states, pid) for pid in members}
        known = {pid: rank for pid, rank in found.items() if rank is not None}
        if len(known) == len(members) and len(set(known.values())) == len(known):
            return known
    is_counted = len(members) > 1 and len({process.host for process in processes}) == 1
    return dict(zip(sorted(members), range(len(members)), strict=True)) if is_counted else {}


def _is_started_as_rank(process: Process, processes: Sequence[Process], waiting: set[int]) -> bool:
    """Return whether a process was given its rank by a launcher, as those that wait were; children inherit it."""
    rank = process.environ.get("RANK")
    parent = next((other for other in processes if other.pid == process.parent), None)
    is_first = parent is None or parent.environ.get("RANK") != rank
    return (
        bool(rank)
        and is_first
        and not process.ended
        and any("RANK" in other.environ for other in processes if other.pid in waiting)
    )


def is_spread(processes: Sequence[Process], ranks: Iterable[int]) -> bool:
    """Return whether all ranks that were started on the machines of a picture are in it, and others run elsewhere."""
    members = [process for process in processes if process.pid in ranks]
    hosts = {process.host: process.environ.get("LOCAL_WORLD_SIZE", "") for process in members}
    sizes = [int(size) for size in hosts.values() if size.isdigit()]
    return len(sizes) == len(hosts) and 0 < sum(sizes) <= len(members)


def _is_like(process: Process, processes: Sequence[Process], waiting: set[int]) -> bool:
    """Return whether a process was started like those that wait: by the same command, or with a rank of its own."""
    commands = {other.command for other in processes if other.pid in waiting}
    return not process.ended and (process.command in commands or "RANK" in process.environ)


def world_size(processes: Sequence[Process], states: Sequence[ThreadState], ranks: dict[int, int]) -> int | None:
    """Return how many ranks the job has, where a variable or the environment tells."""
    sizes = [state.user.value(*_SIZES) for state in states if state.pid in ranks]
    sizes += [
        process.environ.get(name, "") for name in _SIZE_VARIABLES for process in processes if process.pid in ranks
    ]
    parents = {process.parent for process in processes if process.pid in ranks}
    sizes += [state.user.value("nprocs", "world_size") for state in states if state.pid in parents]
    numbers = [int(size) for size in sizes if size.isdigit()]
    return numbers[0] if numbers else None


def _variable(states: Sequence[ThreadState], pid: int) -> int | None:
    return _number(states, pid, lambda state: state.user.value(*_RANKS))


def _local_variable(states: Sequence[ThreadState], pid: int) -> int | None:
    return _number(states, pid, lambda state: state.user.value(*_LOCAL) or state.process.environ.get("LOCAL_RANK", ""))


def _environ(states: Sequence[ThreadState], pid: int) -> int | None:
    def text(state: ThreadState) -> str:
        return next((state.process.environ[name] for name in _VARIABLES if name in state.process.environ), "")

    return _number(states, pid, text)


def _position(states: Sequence[ThreadState], pid: int) -> int | None:
    """Return the index under which torch.multiprocessing started a process: a variable of its own frame."""

    def text(state: ThreadState) -> str:
        frames = [frame for frame in state.user.frames if _SPAWNED.search(frame.file or "") and frame.method == "_wrap"]
        return next((value.text for frame in frames for value in frame.values if value.name == "i"), "")

    return _number(states, pid, text)


def _number(states: Sequence[ThreadState], pid: int, text: Callable[[ThreadState], str]) -> int | None:
    texts = [text(state) for state in states if state.pid == pid and state.is_main]
    return next((int(word) for word in texts if word.isdigit()), None)
