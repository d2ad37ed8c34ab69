"""A folder of raw stacks becomes one diagnosis."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.hangs.pictures import SAMPLES
from tests.results import environment
from whichtorch.hangs import stack_folder
from whichtorch.hangs.dispatch import call_path
from whichtorch.hangs.hang_diagnosis import HangDiagnosis, signature_frames
from whichtorch.hangs.stack_folder import rank_line, stack_texts
from whichtorch.hangs.stacks import Process, Thread, native, python
from whichtorch.inside import probe
from whichtorch.model import Fingerprint
from whichtorch.process.evidence.capture import COLLECTORS
from whichtorch.process.evidence.waiting import HangKind
from whichtorch.watch.process_report import together

TABLE = (SAMPLES / "table.aten_mm.2.11.0.txt").read_text()
ENVIRONMENT = environment(fingerprint=Fingerprint(dispatch={"aten::mm": TABLE}))


def filled(folder: Path) -> Path:
    """Return a folder with the stacks of the hang in which a Meta kernel waits for the GIL."""
    folder.mkdir(exist_ok=True)
    names = {"kernel.txt": "proc.txt", "26947.pystack.txt": "26947.pystack-native.txt"}
    names["26947.pyspy.json"] = "pyspy-native.json"
    for name, sample in names.items():
        shutil.copyfile(SAMPLES / f"gil_deadlock.{sample}", folder / name)
    return folder


def test_a_folder_is_read_into_one_diagnosis(tmp_path: Path) -> None:
    """Kernel, py-spy and pystack together name the cycle; the environment's table names the kernel's key."""
    folder = filled(tmp_path / "stacks")
    found = stack_folder.diagnose_folder(folder, stack_folder.tables_of(ENVIRONMENT))
    assert found is not None
    fields = stack_folder.stored(*found, 1.234).model_dump(mode="json")
    assert fields["place"] == "boxed kernel, Python-registered Meta kernel of aten::mm, waiting for the GIL"
    assert (fields["kind"], fields["stage"], fields["key"]) == ("GIL cycle", "waiting for the GIL", "Meta")
    assert fields["stuck"] == {"pid": 26947, "tid": 26950}
    assert [edge["tid"] for edge in fields["cycle"]] == [26950, 26947]
    assert fields["seconds"] == 1.23
    signature = found[0].signature
    assert signature is not None
    assert signature == "stuck: GIL cycle in aten::mm < run_mm.py:5"
    assert "stuck here" in (folder / stack_folder.READABLE).read_text()


def test_without_a_table_the_place_is_less(tmp_path: Path) -> None:
    """An environment probed by an older tool has no table: the frames alone tell."""
    bare = ENVIRONMENT.model_copy(update={"fingerprint": Fingerprint(dispatch="unknown (AttributeError)")})
    found = stack_folder.diagnose_folder(filled(tmp_path / "stacks"), stack_folder.tables_of(bare))
    assert found is not None
    assert found[0].operator == "aten::mm"


@pytest.mark.parametrize("version", ["2.1.2", "2.11.0", "2.15.0"])
def test_what_the_probe_keeps_of_a_table_tells_the_same(version: str) -> None:
    """The rows that are kept lead the calls of CPU, CUDA and meta tensors to the same kernels, and are few."""
    text = (SAMPLES / f"table.aten_mm.{version}.txt").read_text()
    torch = SimpleNamespace(_C=SimpleNamespace(_dispatch_dump_table=lambda _name: text))
    kept = probe.dispatch(torch)["aten::mm"]
    assert len(kept) < 1500
    for device in ("CPU", "CUDA", "Meta"):
        keys = (device, "ADInplaceOrView", f"Autograd{device}")
        rows = [call_path.parse_table(dump, "aten::mm").called(keys) for dump in (text, kept)]
        assert [row.words for row in rows[0]] == [row.words for row in rows[1]]


def test_no_frames_no_diagnosis(tmp_path: Path) -> None:
    """A folder that is not there, is empty, or holds only the kernel's view or nonsense, tells nothing."""
    assert stack_folder.diagnose_folder(tmp_path / "nowhere") is None
    assert stack_folder.diagnose_folder(tmp_path) is None
    (tmp_path / "kernel.txt").write_text("pid 1 parent=0 init\n1 state=S wchan=do_wait\n")
    (tmp_path / "1.pyspy.json").write_text("[{]")
    (tmp_path / "x.gdb.txt").write_bytes(b"\xff\xfe")
    assert stack_folder.diagnose_folder(tmp_path) is None


def test_every_collector_names_a_parser_that_exists() -> None:
    """A row of the table is enough to have a collector's output read."""
    for collector in COLLECTORS:
        assert stack_folder.parser(collector)("", 1) == ()


def test_signature_leaves_out_how_things_start() -> None:
    """Neither OpenMP's frames, nor the interpreter's start, nor threading's are part of a signature."""
    frames = (
        native("GOMP_parallel", library="libgomp-1234.so.1"),
        native("at::sum", library="libtorch_cpu.so"),
        python("work", "/a/b.py", 3),
        python("run", "/lib/threading.py", 982),
        native("get_small_int", library="libpython3.11.so.1.0"),
        native("run_mod", library="libpython3.11.so.1.0"),
        native("__libc_start_main", library="libc.so.6"),
        native("_start", library="python3.11"),
    )
    assert signature_frames(Thread(tid=1, frames=frames)) == ("at::sum", "work (b.py)")


def process(pid: int, *places: str) -> Process:
    """Return a process with a thread at each of some places, "file:line"."""
    threads = []
    for position, place in enumerate(places):
        file, _, line = place.partition(":")
        threads.append(Thread(tid=pid + position, frames=(python("f", file, int(line)),), state="S"))
    return Process(pid=pid, threads=tuple(threads))


def texts(*processes: Process, ranks: dict[int, int] | None = None, most: int | None = None) -> tuple[list[str], str]:
    """Return the first line of each stack, and what is said of the rest; the last process's main thread is stuck."""
    last = processes[-1].pid
    diagnosis = HangDiagnosis(kind=HangKind.UNKNOWN, stuck_pid=last, stuck_thread=last, ranks=ranks or {})
    stacks, left_out = stack_texts(diagnosis, processes, most)
    return [text.splitlines()[0] for text in stacks], left_out


def test_ranks_share_a_stack() -> None:
    """The ranks are named in spans, and the stuck one comes first."""
    processes = [process(10 * number, "train.py:88") for number in (1, 2, 3)]
    shown, _ = texts(*processes, process(40, "data.py:40"), ranks={10: 0, 20: 1, 30: 2, 40: 3})
    assert shown == ["rank 3, thread 40 (state S)", "ranks 0-2, the main thread of each (state S)"]


def test_threads_of_a_process_share_a_stack() -> None:
    """They are named by their numbers."""
    shown, _ = texts(process(10, "a.py:1", "b.py:2", "b.py:2", "b.py:2"))
    assert shown == ["thread 10 (state S)", "threads 11-13 of process 10 (state S)"]


def test_threads_of_processes_that_are_no_ranks() -> None:
    """They are named by the numbers of their processes, and how many they are."""
    shown, _ = texts(process(10, "a.py:1", "b.py:2", "b.py:2"), process(20, "a.py:1", "b.py:2"))
    assert shown == [
        "processes 10 and 20, the main thread of each (state S)",
        "processes 10 and 20, 3 threads (state S)",
    ]


def test_of_what_is_left_out_all_threads_count() -> None:
    """A stack that is not shown may be that of many."""
    shown, left_out = texts(process(10, "b.py:2", "b.py:2", "b.py:2"), process(20, "a.py:1"), most=1)
    assert (shown, left_out) == (["thread 20 (state S)"], "and 3 more")


def test_machines_are_named() -> None:
    """Equal numbers on two machines are two processes."""
    processes = together([("left", [process(10, "a.py:1")]), ("right", [process(10, "a.py:1")])])
    shown, _ = texts(*processes)
    assert shown == ["processes 10 on right, 10 on left, the main thread of each (state S)"]
    ranks = {processes[0].pid: 1, processes[1].pid: 0}
    assert rank_line(processes, ranks) == "processes of the ranks: 0: 10 on right; 1: 10 on left"
