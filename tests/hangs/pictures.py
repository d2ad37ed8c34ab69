"""The stacks of real hung processes, and what the tests do with them.

`gil_deadlock` and `fork_openmp` are PyTorch 2.11.0; the others are small programs of CPython 3.11, taken on one
Linux machine with paths shortened to ENV, PYTHON, BUILD and WORK. A number in a file's name is the process.
"""

from collections.abc import Callable
from pathlib import Path

from tests.hangs import pyspy_text
from whichtorch.hangs import stack_readers, stacks
from whichtorch.hangs.dispatch import call_path
from whichtorch.hangs.dispatch.call_path import Table
from whichtorch.hangs.stacks import Process, Thread

SAMPLES = Path(__file__).parent / "samples"
VERSION = "2.11.0"

Parser = Callable[[str, int], tuple[Process, ...]]
PARSERS: dict[str, Parser] = {
    "pyspy.json": stack_readers.parse_pyspy,
    "pyspy-native.json": stack_readers.parse_pyspy,
    "pyspy-native.txt": pyspy_text.parse,
    "pystack.txt": stack_readers.parse_pystack,
    "pystack-native.txt": stack_readers.parse_pystack,
    "gdb.txt": stack_readers.parse_gdb,
    "faulthandler.txt": stack_readers.parse_faulthandler,
    "proc.txt": stack_readers.parse_kernel,
}


def files(name: str = "", *, collectors: tuple[str, ...] = tuple(PARSERS)) -> list[Path]:
    """Return the sample files of a program, or of all."""
    paths = sorted(SAMPLES.glob(f"{name}[._]*" if name else "*"))
    return [path for path in paths if path.name.endswith(collectors) and not path.name.startswith("table.")]


def parse(path: Path) -> tuple[Process, ...]:
    """Return what the collector of a sample saw."""
    parser = next(parser for suffix, parser in PARSERS.items() if path.name.endswith("." + suffix))
    return parser(path.read_text(), next(map(int, filter(str.isdigit, path.name.split("."))), 0))


def picture(name: str, *collectors: str) -> tuple[Process, ...]:
    """Return one picture of a program, of all collectors or of those named."""
    return stacks.merge(*map(parse, files(name, collectors=collectors or tuple(PARSERS))))


def table(version: str = VERSION) -> Table:
    """Return how a release dispatches aten::mm."""
    return call_path.parse_table((SAMPLES / f"table.aten_mm.{version}.txt").read_text(), "aten::mm")


def thread(processes: tuple[Process, ...], tid: int) -> Thread:
    """Return a thread by its number."""
    return next(thread for process in processes for thread in process.threads if thread.tid == tid)
