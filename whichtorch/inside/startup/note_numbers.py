"""For a measured run, note what it takes: seconds, CPU time, memory, compile time, and memory at the lines it prints.

What is noted is written at the end of the process, as JSON, to a file whose prefix is in WHICHTORCH_MEASURE. Only the
process of the script is measured; its children that have ended count with their CPU time. A command may start several
Python processes: each writes a file of its own, but not those that another Python has started. An error of this hook is
written to the file, too, and the script goes on.
"""
# importing pathlib would take time that counts
# ruff: noqa: PTH105, PTH123, PTH208

from __future__ import annotations

import atexit
import gc
import json
import os
import resource
import sys
import time

TYPE_CHECKING = False  # importing typing would slow every start
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

ASKED = "WHICHTORCH_MEASURE"  # JSON: the prefix of the file, and what to measure
MOST_STEPS = 100_000
WORKED = 0.01  # seconds on a core, of a thread that does some of the work
COMPILERS = ("/torch/_dynamo/convert_frame.py", "/torch/_inductor/compile_fx.py")  # a frame of these, while it compiles


def install(after_import: Callable[[str, Callable[[ModuleType], object]], object]) -> None:
    """Note when the import of torch begins and ends, and write the notes at the end of this process."""
    asked = os.environ.pop(ASKED, None)
    if not asked:
        return
    told, pid = json.loads(asked), os.getpid()
    notes = {"import": None, "steps": [], "gc": GcClock()}  # type: dict[str, Any]
    start(notes)
    if "torch" not in sys.modules:
        clock = ImportClock(notes)
        sys.meta_path.insert(0, clock)
        after_import("torch", clock.stop)
    if told["compile"]:
        gc.callbacks.append(notes["gc"])
    if told["every"] is not None:
        watch_lines(told["every"], notes["steps"])
    # among the last to be called: what the script leaves to do counts
    atexit.register(finish, "{}-{}.json".format(told["file"], pid), pid, notes)


class ImportClock:
    """An import finder that finds nothing, and notes when torch is looked for."""

    def __init__(self, notes: dict[str, Any]) -> None:
        self.notes = notes
        self.before = None  # type: Any

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Note the first look for torch."""
        if name == "torch" and self.before is None:
            self.before = clocks(), own_memory()

    def stop(self, _torch: ModuleType) -> None:
        """Note what the import took; the script's own time begins now."""
        since, memory = self.before
        self.notes["import"] = dict(taken(since), memory=own_memory() - memory)
        start(self.notes)
        # called before the exit handlers of torch itself: 5 ms of CPU time in 2.8, 2 ms in 2.7
        atexit.register(lambda: self.notes.setdefault("taken", taken(self.notes["clocks"])))


class GcClock:
    """A callback of the garbage collector that adds up the seconds that it takes within torch's compilers.

    A full collection takes a tenth of a second after `import torch`. Whether one falls into a compile depends on all
    objects that were made before: one unrelated line changed a compile of half a second by 20 %.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.began = 0.0  # when the collection began that is going on

    def __call__(self, phase: str, _about: dict[str, int]) -> None:
        """Note when a collection begins, and what it took when it ends."""
        now = time.perf_counter()
        if phase == "start":
            self.began = now
        elif is_within_compiler():
            self.seconds += now - self.began


def is_within_compiler() -> bool:
    """Return whether one of torch's compilers is among the callers, and not a compiled function that it has made."""
    frame = sys._getframe()  # type: Any
    while frame is not None:
        if frame.f_code.co_filename.endswith(COMPILERS) and "compile" in frame.f_code.co_name:
            return True
        frame = frame.f_back
    return False


def start(notes: dict[str, Any]) -> None:
    """Let the time of the script begin."""
    notes["clocks"], notes["faults"] = clocks(), child_faults()


def clocks() -> dict[str, float]:
    """Return the time, the CPU time, and for how long the living threads of this process have waited for a core."""
    return {"wall": time.perf_counter(), "cpu": cpu_seconds(), "queued": sum(queued for _, queued in core_times())}


def taken(since: dict[str, float]) -> dict[str, float]:
    """Return by how much the clocks have gone on."""
    return {name: max(0.0, now - since[name]) for name, now in clocks().items()}


def core_times() -> list[tuple[float, float]]:
    """Return the seconds of each living thread on a core and in the queue for one; none where nobody counts them."""
    times = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/" + thread + "/schedstat") as file:
                on_core, queued, _ = file.read().split()
        except (OSError, ValueError):  # it has ended, or the kernel lacks it
            continue
        times.append((int(on_core) / 1e9, int(queued) / 1e9))
    return times


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def blocks() -> int:
    """Return how many blocks of 512 bytes this process has read from disks, and written to files."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_inblock + used.ru_oublock


def child_faults() -> int:
    """Return the page faults of the children that have ended: every child has some, so an increase means a child."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def resident() -> dict[str, int]:
    """Return the resident memory of this process, its peak, and how much of it is of files, in bytes."""
    kinds = (b"VmHWM", b"VmRSS", b"RssFile")
    with open("/proc/self/status", "rb") as file:
        lines = (line.split() for line in file if line.startswith(kinds))
        return {name.decode().rstrip(":"): int(kilobytes) * 1024 for name, kilobytes, _ in lines}


def own_memory() -> int:
    """Return the anonymous and shared memory of this process, in bytes; pages of files do not count.

    How many pages of a file are mapped at a fault depends on how the file came into memory: the resident memory of
    `import torch` fell from 445 to 385 MiB when the files of the same torch 2.1.2 were read from disk again.
    """
    now = resident()
    return now["VmRSS"] - now.get("RssFile", 0)  # Linux before 4.5 does not tell them apart


def peak() -> int:
    """Return the peak of that memory, in bytes. `ru_maxrss` may be that of the parent.

    The kernel keeps only the peak of all resident memory. What is resident of files now is taken from that.
    """
    now = resident()
    return max(now["VmHWM"], now["VmRSS"]) - now.get("RssFile", 0)


def watch_lines(pattern: str, steps: list[int]) -> None:
    """Note the memory of this process after each line that the script prints and that matches the pattern."""
    import re

    wanted = re.compile(pattern)

    def watch(stream: Any) -> None:
        write, pending = stream.write, [""]

        def written(text: str) -> Any:
            result = write(text)
            *lines, pending[0] = (pending[0] + text).split("\n")
            if len(steps) < MOST_STEPS:
                steps.extend(own_memory() for line in lines if wanted.search(line))
            return result

        stream.write = written

    for stream in (sys.stdout, sys.stderr):
        watch(stream)


def finish(file: str, pid: int, notes: dict[str, Any]) -> None:
    """Write what was noted; a forked child writes nothing."""
    if os.getpid() != pid:
        return
    try:
        told = {
            **(notes.get("taken") or taken(notes["clocks"])),
            "queued_in_all": clocks()["queued"],
            "threads": sum(on_core > WORKED for on_core, _ in core_times()),
            "blocks": blocks(),
            "import": notes["import"],
            "peak": peak(),
            "has_children": child_faults() > notes["faults"],
            "steps": notes["steps"],
            "compile": compile_seconds(),
            "gc": notes["gc"].seconds,
        }  # type: dict[str, Any]
    except Exception as error:  # noqa: BLE001
        told = {"problem": type(error).__name__ + ": " + str(error)}
    with open(file + ".part", "w", encoding="utf-8") as part:
        json.dump(told, part)
    os.replace(file + ".part", file)


def compile_seconds() -> dict[str, float] | None:
    """Return the seconds of each phase that torch has timed of its compilers; None where none was used."""
    utils = sys.modules.get("torch._dynamo.utils")
    metrics = getattr(utils, "compilation_time_metrics", None)
    return {str(name): float(sum(values)) for name, values in metrics.items()} if metrics else None
