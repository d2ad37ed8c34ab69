"""What kind of hang a picture shows, on evidence only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hangs.pictures import picture, table
from whichtorch.hangs import stack_readers, stacks
from whichtorch.hangs.dispatch.call_path import Stage
from whichtorch.hangs.hang_diagnosis import HangDiagnosis, diagnose
from whichtorch.hangs.stack_folder import diagnosis_lines
from whichtorch.hangs.stacks import Frame, KernelWait, Process, Thread, native, python
from whichtorch.model import ThreadWait
from whichtorch.process.evidence.waiting import HangKind, Waiting

TABLES = {"aten::mm": table()}
SUMMARY = (
    "boxed kernel, Python-registered Meta kernel of aten::mm, waiting for the GIL; "
    "thread 26950 in PythonKernelHolder waits for the GIL; "
    "thread 26947 holds the GIL and waits in std::thread::join (run_mm.py:5) for it"
)
WITHOUT_PYTHON = SUMMARY.replace(" (run_mm.py:5)", "")  # gdb alone sees no frames of Python
KINDS = {
    "two_locks": (HangKind.LOCK_CYCLE, 7286),
    "ctypes_join": (HangKind.GIL_CYCLE, 7317),
    "mutex": (HangKind.LOCK_CYCLE, 7720),
    "forked_lock": (HangKind.FORKED_LOCK, 7534),
    "spin_python": (HangKind.SPIN_PYTHON, 7360),
    "spin_native": (HangKind.SPIN_NATIVE, 7341),
    "spin_without_gil": (HangKind.SPIN_NATIVE, 7743),
    "child": (HangKind.CHILD, 7416),
    "pipe": (HangKind.PIPE, 7471),
    "queue_of_child": (HangKind.QUEUE, 7608),
    "event": (HangKind.CONDITION, 7691),
    "python_key": (HangKind.CONDITION, 9789),
    "compile": (HangKind.SLOW_COMPILE, 11934),
    "stopped": (HangKind.STOPPED, 7378),
    "fork_openmp": (HangKind.FORK_AFTER_THREADS, 27054),
    "gil_deadlock": (HangKind.GIL_CYCLE, 26950),
}
LOCK = (native("PyThread_acquire_lock_timed", library="libpython3.11.so"), python("f", "a.py", 3))
JOIN = (native("std::thread::join()", library="libstdc++.so.6"), python("<module>", "a.py", 1))
TAKE_GIL = (native("take_gil", library="libpython3.11.so"), native("worker()", library="x.so"))


def blocked(tid: int, *frames: Frame, **facts: object) -> Thread:
    """Return a sleeping thread."""
    return Thread.model_validate({"tid": tid, "frames": frames, "state": "S"} | facts)


def of(*threads: Thread, pid: int = 1, **facts: object) -> Process:
    """Return a process."""
    return Process.model_validate({"pid": pid, "threads": threads} | facts)


@pytest.mark.parametrize("name", KINDS)
def test_kind_of_real_hangs(name: str) -> None:
    """Each program's hang gets its own kind, and the thread that decides it is the one named."""
    found = diagnose(picture(name), tables=TABLES)
    assert (found.kind, found.stuck_thread) == KINDS[name]


@pytest.mark.parametrize(
    "collectors",
    [
        ("pyspy-native.json",),
        ("pyspy-native.txt",),
        ("pystack-native.txt",),
        ("gdb.txt",),
        ("pystack-native.txt", "proc.txt"),
        (),
    ],
    ids=lambda collectors: "+".join(collectors) or "all",
)
def test_the_gil_cycle_of_the_meta_kernel(collectors: tuple[str, ...]) -> None:
    """Any one collector of native frames is enough for the whole sentence, and for the same signature."""
    found = diagnose(picture("gil_deadlock", *collectors), tables=TABLES)
    assert found.summary == (WITHOUT_PYTHON if collectors == ("gdb.txt",) else SUMMARY)
    assert (found.operator, found.key, found.closed) == ("aten::mm", "Meta", True)
    assert found.place is not None
    assert found.place.stage is Stage.WAITING_GIL
    assert [(edge.tid, edge.partner, edge.holds) for edge in found.cycle] == [
        (26950, 26947, None),
        (26947, 26950, Waiting.GIL),
    ]
    assert found.signature_frames[:3] == (
        "PythonKernelHolder",
        "c10::impl::BoxedKernelWrapper::call",
        "at::_ops::mm::redispatch",
    )


def test_the_edges_say_how_they_are_known() -> None:
    """With pystack's mark and the kernel's number nothing is by elimination; without them the edge says so."""
    known = diagnose(picture("gil_deadlock")).cycle[1].evidence
    assert known == "marked as the holder of the GIL; its futex holds that thread's number"
    inferred = diagnose(picture("gil_deadlock", "pyspy-native.txt")).cycle[1].evidence
    assert inferred.startswith("the only other thread that runs Python")


def test_a_lock_cycle_names_both() -> None:
    """Two threads wait for locks and nobody else runs."""
    found = diagnose(picture("two_locks"))
    assert found.summary == (
        "the main thread waits in Thread.join (deadlock.py:28) for the end of thread 7286; thread 7286 waits "
        "(deadlock.py:17) for the lock; thread 7287 waits (deadlock.py:17) for the lock; "
        "no thread of the process is left to release them"
    )
    assert {edge.tid for edge in found.cycle[:2]} == {7286, 7287}
    assert found.closed
    assert found.signature_frames[0] == "take (deadlock.py)"


def test_fork_after_threads_names_parent_and_child() -> None:
    """The child's thread is the stuck one; the parent waits for just this child."""
    found = diagnose(picture("fork_openmp"))
    assert (
        "thread 27054 of the forked child waits in OpenMP (fork_omp.py:7) for threads that fork did not copy"
        in found.summary
    )
    assert found.cycle[1].partner == 27054
    assert found.place is not None
    assert found.operator == "aten::sin"


@pytest.mark.parametrize(("beside", "is_told"), [("libiomp5.so", True), ("libgomp.so.1", False)])
def test_a_wait_in_openmp_names_two_runtimes(beside: str, is_told: bool) -> None:
    """A process that waits in OpenMP, and has loaded the runtimes of two makers, is told with both."""
    loaded = {"openmp": ("libgomp-a34b3233.so.1", beside)}
    found = diagnose([process.model_copy(update=loaded) for process in picture("fork_openmp")])
    assert (f"has loaded libgomp-a34b3233.so.1 and {beside}: OpenMP of two makers" in found.summary) is is_told


def test_a_lock_copied_by_fork_is_remarked() -> None:
    """A forked child alone with a locked lock: the remark says what fork does to locks."""
    assert "fork copies a lock as it is" in diagnose(picture("forked_lock")).summary


@pytest.mark.parametrize(
    ("name", "collectors"),
    [
        ("two_locks", ("proc.txt",)),
        ("gil_deadlock", ("proc.txt",)),
        ("spin_python", ("faulthandler.txt", "proc.txt")),
        ("spin_native", ("faulthandler.txt",)),
        ("fork_openmp_child", ()),
    ],
)
def test_unknown_stays_unknown(name: str, collectors: tuple[str, ...]) -> None:
    """Too little evidence gives "unknown", whatever the hang really was."""
    assert diagnose(picture(name, *collectors)).kind is HangKind.UNKNOWN


def test_frames_of_python_alone_tell_the_wait_and_no_lock() -> None:
    """The main thread's join is seen; that the others wait for locks is not, so no cycle is told."""
    found = diagnose(picture("two_locks", "faulthandler.txt"))
    assert (found.kind, found.closed) == (HangKind.THREAD, False)
    assert found.summary.startswith(
        "the main thread waits in Thread.join (deadlock.py:28) for the end of a thread; "
        "who could end the wait is not known: "
    )


def test_no_picture_at_all() -> None:
    """Nothing seen, nothing said."""
    assert diagnose(()) == HangDiagnosis(kind=HangKind.UNKNOWN, summary="who waits for whom is not known")


def test_a_lock_that_somebody_may_still_release_is_no_cycle() -> None:
    """A thread that sleeps, or of which nothing is known, may hold the lock."""
    waiter = blocked(1, *LOCK)
    sleeper = blocked(2, native("clock_nanosleep", library="libc.so.6"))
    for other in (sleeper, blocked(2)):
        found = diagnose([of(waiter, other)])
        assert (found.kind, found.closed) == (HangKind.LOCK, False)
    assert diagnose([of(waiter)]).kind is HangKind.LOCK_CYCLE


def test_a_wait_for_any_child_leads_to_children_that_wait_alike() -> None:
    """A child that is stuck for good is told, whichever child its parent waits for."""
    parent = of(blocked(1, native("wait4", library="libc.so.6"), python("<module>", "a.py", 1)), parent=0)
    stuck = [of(blocked(pid, *LOCK), pid=pid, parent=1) for pid in (2, 3)]
    sleeper = of(blocked(4, native("clock_nanosleep", library="libc.so.6")), pid=4, parent=1)
    found = diagnose([parent, *stuck])
    assert (found.kind, found.stuck_pid) == (HangKind.LOCK_CYCLE, 2)
    assert diagnose([parent, *stuck, sleeper]).stuck_pid == 2


def test_an_idle_pool_is_nobody() -> None:
    """Workers that wait for work neither hold a lock nor keep the verdict open."""
    worker = blocked(2, native("pthread_cond_wait"), native("blas_thread_server", library="libopenblas.so"))
    assert diagnose([of(blocked(1, *LOCK), worker)]).kind is HangKind.LOCK_CYCLE


def test_the_gil_for_a_mutex() -> None:
    """Who holds the GIL may wait for a lock of the thread that wants the GIL."""
    mutex = (native("__lll_lock_wait", library="libc.so.6"), native("f()", library="x.so"), python("g", "a.py", 2))
    found = diagnose([of(blocked(1, *mutex, has_gil=True), blocked(2, *TAKE_GIL, wants_gil=True))])
    assert found.kind is HangKind.GIL_CYCLE
    assert found.summary.endswith("thread 1 holds the GIL and waits in f (a.py:2) for it")


def test_waiting_for_the_gil_of_a_spinning_thread_is_no_cycle() -> None:
    """The holder runs: it is the place, and the waiter only waits for its turn."""
    spinner = Thread(tid=1, state="R", has_gil=True, frames=(native("any_c", library="x.so"), python("f", "a.py", 1)))
    found = diagnose([of(spinner, blocked(2, *TAKE_GIL, wants_gil=True))])
    assert (found.kind, found.stuck_thread) == (HangKind.SPIN_NATIVE, 1)
    assert "it holds the GIL, for which 1 waits" in found.summary


def test_a_join_of_a_thread_that_does_not_want_the_gil_is_no_gil_cycle() -> None:
    """The joined thread waits for something else: the GIL's waiter is a bystander."""
    other = blocked(3, native("read", library="libc.so.6"), native("h()", library="x.so"))
    found = diagnose([of(blocked(1, *JOIN, has_gil=True, joins=3), blocked(2, *TAKE_GIL, wants_gil=True), other)])
    assert (found.kind, found.stuck_thread) == (HangKind.IO, 3)


def test_stall_rows_alone() -> None:
    """The supervisor's evidence without any stack: two threads, one wants the GIL, so the other has it."""
    rows = [
        ThreadWait(pid=1, tid=1, name="python", state="S", wait="futex", detail="0x7f"),
        ThreadWait(pid=1, tid=2, name="python", state="S", wait="gil"),
    ]
    assert diagnose(stack_readers.from_stall(rows)).kind is HangKind.GIL_CYCLE
    pipe = [ThreadWait(pid=1, tid=1, name="python", state="S", wait="pipe", detail="read of fd 3")]
    assert diagnose(stack_readers.from_stall(pipe)).kind is HangKind.PIPE
    third = ThreadWait(pid=1, tid=3, name="python", state="S", wait="futex", detail="0x8")
    assert diagnose(stack_readers.from_stall([*rows, third])).kind is HangKind.UNKNOWN


def test_stall_rows_complete_stacks() -> None:
    """Where py-spy misreads a wait for the GIL, the supervisor's word for it decides."""
    rows = [
        ThreadWait(pid=7315, tid=7315, name="python", state="S", wait="futex", detail="0x7f"),
        ThreadWait(pid=7315, tid=7317, name="python", state="S", wait="gil"),
    ]
    alone = picture("ctypes_join", "pyspy.json")
    assert diagnose(alone).kind is HangKind.UNKNOWN
    assert diagnose(stacks.merge(alone, stack_readers.from_stall(rows))).kind is HangKind.GIL_CYCLE


def test_an_import_of_the_compiler_is_no_compilation() -> None:
    """A slow import of torch's compiler runs Python; a compilation that imports something goes on."""
    body = python("TracingContext", "ENV/torch/_dynamo/variables/functions.py", 121)
    of_compiler = python("<module>", "ENV/torch/_dynamo/variables/functions.py", 90)
    user = python("<module>", "CWD/script.py", 3)
    libc = native("main", library="python3.11")
    importing = Thread(tid=1, state="R", frames=(body, of_compiler, user, libc))
    assert diagnose([of(importing)]).kind is HangKind.SPIN_PYTHON
    compiling = python("compile_inner", "ENV/torch/_dynamo/convert_frame.py", 7)
    later = Thread(tid=1, state="R", frames=(body, of_compiler, compiling, user, libc))
    assert diagnose([of(later)]).kind is HangKind.SLOW_COMPILE


def test_slow_compile_in_python_and_in_a_compiler() -> None:
    """Frames of inductor's own code on a core are a compilation; running what it compiled is not."""
    lowering = python("lower", "ENV/torch/_inductor/lowering.py", 9)
    runs = python("__call__", "ENV/torch/_inductor/codecache.py", 9)
    libc = native("main", library="python3.11")
    compiling = Thread(tid=1, state="R", frames=(python("f", "ENV/sympy/core.py", 1), lowering, libc))
    assert diagnose([of(compiling)]).kind is HangKind.SLOW_COMPILE
    running = Thread(tid=1, state="R", frames=(native("kernel", library="cabc.so"), runs, libc))
    assert diagnose([of(running)]).kind is HangKind.SPIN_NATIVE
    waiting = blocked(1, native("wait4", library="libc.so.6"), lowering)
    compiler = of(Thread(tid=9, state="R"), pid=9, parent=1, command="/usr/lib/gcc/cc1plus -quiet x.cpp")
    assert diagnose([of(waiting), compiler]).summary == (
        "the main thread compiles, and waits for the compiler `/usr/lib/gcc/cc1plus` (process 9), "
        "in lower (lowering.py:9)"
    )


def test_io_and_device() -> None:
    """A socket and the GPU are waited for by functions that tell."""
    assert diagnose([of(blocked(1, native("accept4"), python("<module>", "a.py", 1)))]).kind is HangKind.IO
    assert diagnose([of(blocked(1, native("cudaStreamSynchronize")))]).kind is HangKind.DEVICE


def test_the_trace_gives_the_place_where_frames_do_not() -> None:
    """A program's dispatch trace or debug prints in stderr stand in for native frames."""
    found = diagnose(picture("two_locks"), stderr="[call] op=[aten::mm], key=[Meta]\n", tables=TABLES)
    assert (found.operator, found.key) == ("aten::mm", "Meta")
    found = diagnose(picture("two_locks"), stderr="[DEBUG _matmul_impl] About to call at::mm\n")
    assert found.place is not None
    assert found.place.stage is Stage.CALL


@given(
    st.lists(
        st.builds(
            Thread,
            tid=st.integers(0, 4),
            frames=st.lists(st.sampled_from([*LOCK, *JOIN, *TAKE_GIL, native("GOMP_parallel")]), max_size=4).map(tuple),
            has_gil=st.sampled_from([True, None]),
            state=st.sampled_from(["R", "S", "D", "T", None]),
            joins=st.sampled_from([None, 1, 2]),
            kernel=st.sampled_from([None, KernelWait(wchan="do_wait", syscall=(61, 2)), KernelWait(word="gil")]),
        ),
        max_size=5,
    )
)
def test_any_picture_has_a_diagnosis(threads: list[Thread]) -> None:
    """No picture raises, none but a known kind names a cycle, and each can be written down and read again."""
    processes = [of(*threads[:3], pid=1), of(*threads[3:], pid=2, parent=1)]
    found = diagnose(processes)
    assert list(diagnosis_lines(found, processes))
    assert HangDiagnosis.model_validate_json(found.model_dump_json()) == found
    assert found.kind is not HangKind.UNKNOWN or not found.closed


def test_lines_for_people() -> None:
    """The kind comes first, then the cycle, the path with its three statuses, and the stuck thread's stack."""
    processes = picture("gil_deadlock")
    lines = list(diagnosis_lines(diagnose(processes, tables=TABLES), processes))
    assert lines[0] == f"GIL cycle: {SUMMARY}"
    text = "\n".join(lines)
    assert "who waits for whom (nothing in it can ever go on)" in text
    assert [line.split()[2:6] for line in lines if "stuck here" in line] == [["waiting", "for", "the", "GIL"]]
    assert [line.split()[2:] for line in lines if line.startswith("  never reached  ret")] == [["returned"]]
    assert lines[-1] == "and 1 idle worker of a pool"
    assert "(expected: Meta: Python, boxed, _meta_registrations.py:53 [kernel])" in text
    stacks_at = [line for line in lines if line.startswith("thread 26")]
    assert stacks_at[0].startswith("thread 26950 of process 26947")
    assert "has the GIL" in next(line for line in stacks_at if line.startswith("thread 26947"))


def test_each_wait_has_its_kind_of_hang() -> None:
    """No wait is told as unknown by oversight: it belongs to one kind, and words of the supervisor to one wait."""
    waits = [waiting for kind in HangKind for waiting in kind.waits]
    assert sorted(filter(None, waits)) == sorted(Waiting)
    assert HangKind.of(None) is HangKind.UNKNOWN
    words = [waiting.word for waiting in Waiting if waiting.word]
    assert len(set(words)) == len(words)
    assert [Waiting.of_word(word) for word in ("gil", "of tomorrow", "")] == [Waiting.GIL, None, None]
