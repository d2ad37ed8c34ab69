"""A script forked from a process that has imported torch shows the same as one started cold, and ends as surely."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import PATIENCE
from tests.process.running import PROGRAMS, family, is_alive, until
from whichtorch.inside.startup import FOLDER
from whichtorch.process import executor as executors
from whichtorch.process import fork_link, marks
from whichtorch.process.executor import BRIEF_EXIT, ForkingExecutor, LocalExecutor
from whichtorch.process.fork_link import ForkLink, ForkServerError
from whichtorch.process.script_reading import ScriptReading
from whichtorch.process.supervision import Ending, Supervised, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and subreapers"),
    pytest.mark.xdist_group("fork_server"),  # the tests share servers
]

ROOT = Path(__file__).resolve().parents[2]
# What the scripts import for torch: it says so, and counts its imports in a file.
STANDIN = {
    "torch/__init__.py": "import os, sys\nfound = sys.modules\ncompile, patched = 'compile', None\n"
    "def sets(_):\n    os.environ['OTHER'] = 'yes'\n"
    "def frozen():\n    import gc\n    return gc.get_freeze_count()\n"
    "sys.stderr.write('torch warns\\n')\n"
    "with open(os.path.join(os.path.dirname(__file__), 'imports'), 'a') as file: file.write('x')\n",
    "numpy.py": "",
    "torch/_dynamo/__init__.py": "def list_backends(): pass\n",
    "torch/_dynamo/backends/__init__.py": "import torch\ntorch.patched = torch.compile\n",
    "torch/_dynamo/backends/common.py": "",
    "torch/_inductor/__init__.py": "",
    "torch/_inductor/graph.py": "",
    "torch/_inductor/twice.py": "print('speaks')\ndef twice(number): return 2 * number\n",
    "torch/_inductor/codecache.py": "import functools\nfrom torch._dynamo import backends\n"
    "from .twice import twice\n@functools.lru_cache(None)\n"
    "def cache_dir():\n    import os\n    return os.environ.get('TORCHINDUCTOR_CACHE_DIR')\ncache_dir()\n",
}
# Each of them ends by itself, and says the same however it was started.
SCRIPTS = {
    "nothing": "",
    "prints": "print('out', flush=True); print('err', file=sys.stderr)",
    "raises": "def inner():\n    raise ValueError('no')\ninner()",
    "chains": "try:\n    {}['key']\nexcept KeyError as error:\n    raise RuntimeError('after') from error",
    "groups": "class Mine(Exception): pass\nraise Mine('of its own')",
    "syntax": "print('never')\nif",
    "own hook": "sys.excepthook = lambda *what: print(what[0].__name__, what[2].tb_lineno, flush=True)\n1 / 0",
    "in atexit": "import atexit\natexit.register(lambda: 1 / 0)",
    "exit 0": "sys.exit()",
    "exit 3": "raise SystemExit(3)",
    "exit text": "sys.exit('a reason')",
    "exit True": "sys.exit(True)",
    "os._exit": "print('lost?', end='')\nos._exit(7)",
    "killed": "import signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "crash": "import ctypes\nctypes.string_at(0)",
    "abort": "os.abort()",
    "interrupts itself": "import signal\nsignal.raise_signal(signal.SIGINT)",
    "broken pipe": "readable, writable = os.pipe()\nos.close(readable)\nos.write(writable, b'x')",
    "thread": "import threading, time\n"
    "def late():\n    threading.main_thread().join()\n    print('late', flush=True)\n"
    "threading.Thread(target=late).start()\nprint('main', flush=True)",
    "thread raises": "import threading\nthread = threading.Thread(target=lambda: 1 / 0, name='mine')\n"
    "thread.start()\nthread.join()",
    "atexit": "import atexit\natexit.register(print, 'first in, last out')\natexit.register(print, 'at exit')",
    "unflushed": "sys.stdout.write('no newline')",
    "names": "print(__file__, sys.argv, __name__, __spec__, __doc__, __package__, __loader__.path, sorted(globals()))\n"
    "import __main__\nprint(sys.path, __main__.__dict__ is globals(), getattr(sys, 'orig_argv', 0))\n",
    "main": "class Mine: pass\nimport pickle\nprint(Mine.__module__, pickle.loads(pickle.dumps(Mine)) is Mine)",
    "environ": "print(sorted(name for name in os.environ if name not in ('WHICHTORCH_ATTEMPT', 'TMPDIR', 'PWD')))",
    "surroundings": "import resource, signal\nprint(sorted(os.listdir('/proc/self/fd')), os.getsid(0) == os.getpid())\n"
    "print(resource.getrlimit(resource.RLIMIT_CORE), open('/proc/self/oom_score_adj').read(), sys.stdin.read())\n"
    "print([signal.getsignal(number) for number in signal.valid_signals()], signal.pthread_sigmask(0, ()))\n"
    "print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), os.umask(0o22), sys.flags)\n"
    "print(sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.encoding, sys.stderr.errors, sys.stdin)",
    "relative file": "print(open('here').read(), os.path.basename(os.getcwd()))",
    "beside": "from beside import value\nprint(value)",
    "children": "import subprocess\nprint(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True))",
    "fork": "pid = os.fork()\nprint('child' if not pid else os.waitpid(pid, 0)[1], flush=True)",
    "fork raises": "if os.fork():\n    os.wait()\nelse:\n    raise ValueError('in the child')",
    "stack": "import traceback\ntraceback.print_stack(limit=1)",
}
POOL = """
import multiprocessing
def square(number):
    return number * number
if __name__ == '__main__':
    with multiprocessing.get_context({!r}).Pool(1) as pool:
        print(pool.map(square, range(5)))
    process = multiprocessing.get_context({!r}).Process(target=square, args=('x',))
    process.start()
    process.join()
    print(process.exitcode)
"""
SCRIPTS |= {f"pool, {method}": POOL.format(method, method) for method in ("fork", "spawn")}
LINES = "import os\nimport sys\nimport torch\n"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the torch of the tests."""
    folder = tmp_path_factory.mktemp("packages")
    for name, text in STANDIN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def executor() -> Iterator[ForkingExecutor]:
    """Keep servers for the tests of this module."""
    with ForkingExecutor() as executor:
        yield executor


def task_of(folder: Path, packages: Path, script: Path | str, **fields: Any) -> Task:
    """Return the task that runs a script in a folder; a text is written to a file first."""
    if isinstance(script, str):
        text, script = script, folder / "script.py"
        folder.mkdir(parents=True, exist_ok=True)
        script.write_text(LINES + text)
    (folder / "place").mkdir(parents=True)
    (folder / "place" / "here").write_text("found")
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "WHICHTORCH_"))}
    environ |= {"PYTHONPATH": os.pathsep.join([str(FOLDER), str(packages)]), "PYTHONFAULTHANDLER": "1"}
    environ |= {"PYTHONUNBUFFERED": "1", "TMPDIR": str(folder / "place")}
    task = Task(
        argv=(sys.executable, str(script), "argument"),
        cwd=str(folder / "place"),
        env=environ | fields.pop("env", {}),
        stdout=str(folder / "out"),
        stderr=str(folder / "err"),
        timeout=PATIENCE,
    )
    return replace(task, **fields)


def forked(executor: LocalExecutor, task: Task, level: str = "torch") -> Ending:
    """Run a task that must be forked."""
    ending = executor.run(task)
    assert ending is not None
    assert (ending.start, ending.cold_because, ending.problem) == (f"fork {level}", "", "")
    return ending


def words(folder: Path) -> tuple[str, ...]:
    """Return what a script wrote, without what differs from process to process.

    Where a signal ends it, faulthandler shows what it was forked from below it.
    """
    texts = ((folder / name).read_text() for name in ("out", "err"))
    return tuple(
        re.sub(r'0x[0-9a-f]+|  File ".*fork_server.py", line \d+ in (?:<module>|run|run_and_end)\n', "", text)
        for text in texts
    )


@pytest.mark.parametrize("exit_is", ["whole", "brief"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_forked_and_cold_show_the_same(
    tmp_path: Path, packages: Path, executor: ForkingExecutor, monkeypatch: pytest.MonkeyPatch, name: str, exit_is: str
) -> None:
    """Exit code, signal and every byte of the output are those of a cold start, whatever the script asks for."""
    if name != "syntax":
        monkeypatch.setattr(executors, "read_script", lambda _: ScriptReading("torch"))
    script = tmp_path / "script.py"
    script.write_text(LINES + SCRIPTS[name] + "\n")
    (tmp_path / "beside.py").write_text("value = __name__")
    task = task_of(tmp_path / "forked", packages, script)
    fork = executor.run(replace(task, env=task.env | {BRIEF_EXIT: "1"}) if exit_is == "brief" else task)
    cold = LocalExecutor().run(replace(task, stdout=str(tmp_path / "out"), stderr=str(tmp_path / "err")))
    assert fork is not None
    assert cold is not None
    wanted = "cold" if name == "syntax" else "fork torch"
    assert fork.start == wanted
    assert (fork.stopped_by, fork.exit_code, fork.signal) == (cold.stopped_by, cold.exit_code, cold.signal)
    assert (fork.survivors, fork.note, fork.problem) == (cold.survivors, cold.note, cold.problem)
    assert words(tmp_path / "forked") == words(tmp_path)


def test_torch_is_imported_once(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """A server's tasks share its import, and each shows what the import wrote."""
    imports = packages / "torch" / "imports"
    before = imports.read_text() if imports.exists() else ""
    for number in range(3):
        forked(executor, task_of(tmp_path / str(number), packages, "", env={"TORCH_LOGS": "own"}))
        assert (tmp_path / str(number) / "err").read_text() == "torch warns\n"
    assert len(imports.read_text()) == len(before) + 1


def test_observing_begins_in_the_fork(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """An observed script has the server of the others, and its observer writes what it does in a started Python."""
    forked(executor, task_of(tmp_path / "plain", packages, "print(sorted(os.environ))"))
    imports = (packages / "torch" / "imports").read_text()
    seen = []
    for way in ("fork", "cold"):
        observation = tmp_path / f"{way}.json"
        environ = {"WHICHTORCH_HOOKS": "observe", "WHICHTORCH_OBSERVE": str(observation)}
        task = task_of(tmp_path / way, packages, "print('WHICHTORCH_OBSERVE' in os.environ)", env=environ)
        if way == "fork":
            forked(executor, task)
            assert (packages / "torch" / "imports").read_text() == imports
        else:
            assert LocalExecutor().run(task)
        seen.append((observation.read_text(), words(tmp_path / way)))
    assert seen[0] == seen[1]
    assert "torch._C" in seen[0][0]  # this torch has no profiler


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("torch.ones", "torch"),
        ("def f(): torch.compile(print, backend='eager')", "torch+compilers"),
        ("def f(): torch.compile(print)", "torch+compilers+kernels"),
        ("import numpy", "torch"),
        ("def f(): torch.compile(print, backend='eager')", "numpy+torch+compilers"),
    ],
)
def test_level_is_what_the_text_uses(
    tmp_path: Path, packages: Path, executor: ForkingExecutor, text: str, level: str
) -> None:
    """What is imported before the script is what it will import, in its order."""
    script = tmp_path / "asks.py"
    script.write_text("import numpy\n" * level.startswith("numpy") + "import torch\n" + text)
    forked(executor, task_of(tmp_path / "at", packages, script), level)


HIDDEN = """
print(hasattr(torch, '_dynamo'), [name for name in torch.found if name.startswith('torch')])
try:
    torch._dynamo.list_backends
except AttributeError as error:
    print(error)
import torch._inductor
print(torch._inductor.__spec__.origin == torch._inductor.__file__, hasattr(torch._inductor, 'graph'))
from torch._inductor import codecache
print([name for name in torch.found if name.startswith('torch')], torch.patched, codecache.twice(2), torch.compile)
"""


def test_what_was_imported_ahead_is_not_seen(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """A module is there when the script has imported it, and then with all that its import brings, no more."""
    forked(executor, task_of(tmp_path / "fork", packages, HIDDEN), "torch+compilers+kernels")
    assert LocalExecutor().run(task_of(tmp_path / "cold", packages, HIDDEN))
    assert words(tmp_path / "fork") == words(tmp_path / "cold")
    assert "speaks\n" in (tmp_path / "fork" / "out").read_text()


def test_what_acts_on_an_import_ends_the_fork(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """An import under other settings might come out otherwise than it did ahead of the script."""
    text = "torch.sets(torch.compile)\nimport torch._dynamo"
    ending = forked(executor, task_of(tmp_path, packages, text), "torch+compilers")
    assert ending.exit_code == 1
    assert "the script changed its environment" in (tmp_path / "err").read_text()


@pytest.mark.parametrize(("folder", "code"), [("site-packages/setuptools/_vendor", 0), ("elsewhere", 1)])
def test_what_packages_bring_along_is_no_other_path(
    tmp_path: Path, packages: Path, executor: ForkingExecutor, folder: str, code: int
) -> None:
    """setuptools, which Inductor imports as it compiles, adds a folder of its own at the end of the path."""
    text = f"import sys\nsys.path.append('/usr/lib/{folder}')\nimport torch._dynamo"
    assert forked(executor, task_of(tmp_path, packages, text), "torch+compilers").exit_code == code


def test_a_file_that_stands_for_a_module(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """A file beside the script that has the name of an imported module is what a started Python would import."""
    (tmp_path / "socket.py").write_text("")
    ending = executor.run(task_of(tmp_path, packages, "", env={"TORCH_LOGS": "shadowed"}))
    assert ending is not None
    assert (ending.start, ending.exit_code) == ("cold", 0)
    assert "socket beside the script" in ending.cold_because


def test_shadowed_scripts_are_no_failures_of_the_server(
    tmp_path: Path, packages: Path, executor: ForkingExecutor
) -> None:
    """However many scripts are shadowed, the same server forks the next one."""
    imports, environ = packages / "torch" / "imports", {"TORCH_LOGS": "shadowed often"}
    before = imports.read_text() if imports.exists() else ""
    for number in range(executors.FAILURES + 1):
        task = task_of(tmp_path / str(number), packages, "", env=environ)
        (tmp_path / str(number) / "socket.py").write_text("")
        ending = executor.run(task)
        assert ending is not None
        assert ending.start == "cold"
    forked(executor, task_of(tmp_path / "last", packages, "", env=environ))
    assert len(imports.read_text()) - len(before) == executors.FAILURES + 2  # each cold start, and the server


def test_variables_that_act_as_python_starts(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """What they do happens before a fork; so the script is started."""
    ending = executor.run(task_of(tmp_path, packages, "", env={"PYTHONPROFILEIMPORTTIME": "1"}))
    assert ending is not None
    assert ending.cold_because == "PYTHONPROFILEIMPORTTIME is set"


def test_folders_are_those_of_the_attempt(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """Temporary files and caches go to the attempt's own folders, whatever the server has used."""
    text = "import tempfile\nfrom torch._inductor import codecache\nprint(tempfile.gettempdir(), codecache.cache_dir())"
    cache = str(tmp_path / "cache")
    task = task_of(tmp_path, packages, text, env={"TORCHINDUCTOR_CACHE_DIR": cache})
    forked(executor, task, "torch+compilers+kernels")
    assert (tmp_path / "out").read_text().split() == ["speaks", str(tmp_path / "place"), cache]


def test_imported_objects_are_frozen(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """The collector of a fork leaves alone what its server has imported: to look at that would copy all of it."""
    forked(executor, task_of(tmp_path, packages, "print(torch.frozen() > 1000)"))
    assert (tmp_path / "out").read_text() == "True\n"


def test_dice_are_thrown_anew(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """Two tasks of a server draw other random numbers."""
    texts = []
    for number in range(2):
        forked(executor, task_of(tmp_path / str(number), packages, "import random\nprint(random.random())"))
        texts.append((tmp_path / str(number) / "out").read_text())
    assert texts[0] != texts[1]


def test_deadlock_is_found_with_its_stacks(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """A forked script that can never go on is ended as any other, and writes its own stacks."""
    text = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"
    (tmp_path / "stacks").mkdir()
    task = task_of(tmp_path, packages, text, env={"WHICHTORCH_STACKS": str(tmp_path / "stacks")})
    ending = forked(executor, replace(task, stall=True, stacks=str(tmp_path / "stacks")))
    assert ending.stopped_by == "stall", ending
    assert ending.evidence.stall[0].wait == "futex"
    (dump,) = (tmp_path / "stacks").glob("*.faulthandler.txt")
    assert 'script.py", line 7 in <module>' in dump.read_text()
    assert int(dump.name.partition(".")[0]) == ending.evidence.stall[0].pid


def test_memory_limit_of_a_fork(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """A forked script that eats memory is stopped, and its server is not its memory."""
    text = "kept = []\nwhile True: kept.append(b'x' * (1 << 20))"
    ending = forked(executor, task_of(tmp_path, packages, text, memory_mb=300))
    assert ending.stopped_by == "memory"
    assert 300 <= ending.peak_rss_mb < 1500


def test_timeout_of_a_fork(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """A forked script that ignores SIGTERM is killed after its time."""
    text = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    ending = forked(executor, task_of(tmp_path, packages, text, timeout=1.0))
    assert (ending.stopped_by, ending.exit_code, ending.signal) == ("timeout", None, None)


def test_output_of_a_fork_is_kept_short(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """Of much output the middle is cut out."""
    ending = forked(executor, task_of(tmp_path, packages, "for _ in range(200): print('x' * (1 << 20))"))
    assert (ending.stopped_by, ending.exit_code) == ("exit", 0)
    assert ending.stdout_bytes == 200 * ((1 << 20) + 1)
    assert (tmp_path / "out").stat().st_size < 3_000_000


@pytest.mark.parametrize("program", ["forks_endlessly", "setsid_forks"])
def test_fork_bomb_of_a_fork(tmp_path: Path, packages: Path, executor: ForkingExecutor, program: str) -> None:
    """A forked script that forks without end is stopped, and its server goes on."""
    text = (PROGRAMS / f"{program}.py").read_text()
    ending = forked(executor, task_of(tmp_path / "bomb", packages, text, processes=60))
    assert (ending.stopped_by, ending.note) == ("processes", "")
    assert not forked(executor, task_of(tmp_path / "after", packages, "")).exit_code


def test_orphan_of_a_fork_is_named_and_killed(tmp_path: Path, packages: Path, executor: ForkingExecutor) -> None:
    """What outlives a forked script is named as a survivor and killed, and the server is no survivor."""
    ending = forked(executor, task_of(tmp_path, packages, (PROGRAMS / "leaves_grandchild.py").read_text()))
    pid = int((tmp_path / "out").read_text())
    assert (ending.stopped_by, ending.exit_code) == ("exit", 0)
    assert len(ending.survivors) == 1
    assert f"({pid}): " in ending.survivors[0]
    assert not is_alive(pid)


class Watched:
    """A task that runs in a thread."""

    def __init__(self, executor: ForkingExecutor, task: Task) -> None:
        self.endings: list[Ending | None] = []
        self.cancelled = threading.Event()
        self.executor = executor
        self.thread = threading.Thread(target=lambda: self.endings.append(executor.run(task, self.cancelled)))
        self.thread.start()

    def supervised(self, task: Task) -> Supervised:
        """Return the running task, once its script runs."""
        assert until(lambda: Path(task.stdout).exists() and "ready" in Path(task.stdout).read_text())
        (found,) = (running for running in self.executor.running if running.task.stdout == task.stdout)
        return found

    def ending(self) -> Ending:
        """Wait for the end."""
        self.thread.join()
        (ending,) = self.endings
        assert ending is not None
        return ending


TREE = (PROGRAMS / "tree.py").read_text()


def test_death_of_the_server_is_no_death_of_the_task(tmp_path: Path, packages: Path) -> None:
    """A killed server does not disturb what was forked from it; the next task starts cold, the one after is forked."""
    with ForkingExecutor() as executor:
        task = task_of(tmp_path / "first", packages, TREE.replace("600", "1"))
        watched = Watched(executor, task)
        supervised = watched.supervised(task)
        (server,) = [pid for pid in family(supervised.pid) if _is_server(pid)]
        os.kill(server, signal.SIGKILL)
        assert (watched.ending().stopped_by, watched.ending().start) == ("exit", "fork torch")
        ending = executor.run(task_of(tmp_path / "second", packages, "sys.exit(4)"))
        assert ending is not None
        assert (ending.exit_code, ending.start) == (4, "cold")
        assert "the fork server" in ending.cold_because
        forked(executor, task_of(tmp_path / "third", packages, ""))


def test_server_that_cannot_import_is_none(tmp_path: Path, packages: Path) -> None:
    """Where the import fails, the script shows it, from a cold start; after some tries no server is tried."""
    (tmp_path / "broken" / "torch").mkdir(parents=True)
    (tmp_path / "broken" / "torch" / "__init__.py").write_text("raise ImportError('no library')")
    with ForkingExecutor() as executor:
        for number in range(3):
            ending = executor.run(task_of(tmp_path / str(number), tmp_path / "broken", ""))
            assert ending is not None
            assert (ending.exit_code, ending.start) == (1, "cold")
            assert ("no library" in ending.cold_because) == (number < 2)
            assert "ImportError: no library" in (tmp_path / str(number) / "err").read_text()


@pytest.mark.parametrize(
    ("text", "because"),
    [
        (
            "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
            "2 threads are left",
        ),
        (
            "class cuda:\n    def _is_in_bad_fork(): raise SystemError\n    def is_initialized(): return False",
            "may have asked for a device",
        ),
    ],
)
def test_a_server_that_may_not_be_forked_says_why(tmp_path: Path, text: str, because: str) -> None:
    """The imports leave threads; or the child that asks for devices ends there, whatever torch raises."""
    (tmp_path / "made" / "torch").mkdir(parents=True)
    (tmp_path / "made" / "torch" / "__init__.py").write_text(text)
    with ForkingExecutor() as executor:
        ending = executor.run(task_of(tmp_path, tmp_path / "made", ""))
        assert ending is not None
        assert (ending.start, ending.exit_code) == ("cold", 0)
        assert because in ending.cold_because


def test_a_driver_that_crashes_counts_no_devices() -> None:
    """A child that a signal ended has no exit code that would be a count."""
    program = (
        "import os, signal, sys\n"
        "from whichtorch.inside.fork_levels import counted_in_child\n"
        "print(counted_in_child(lambda: 3)(), flush=True)\n"
        "counted_in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.stdout, ended.returncode) == ("3\n", 1)
    assert "the devices cannot be counted" in ended.stderr


def test_a_supervisor_that_cannot_be_started_takes_no_place(
    tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later tasks are forked, and nothing of the failed start is left."""

    def fail(_mark: str) -> None:
        raise OSError(errno.EAGAIN, "no process left")

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with ForkingExecutor(1) as executor:
        with monkeypatch.context() as patched:
            patched.setattr(executors, "launch", fail)
            with pytest.raises(OSError, match="no process left"):
                executor.run(task_of(tmp_path / "first", packages, ""))
        assert not list(scratch.iterdir())
        forked(executor, task_of(tmp_path / "second", packages, ""))


def test_a_server_for_which_no_file_can_be_opened_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task need not wait for it, and starts cold."""
    link = ForkLink({"level": "torch", "argv": ["true"], "env": {}, "scratch": str(tmp_path / "scratch")})

    def fail(_name: str) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "memfd_create", fail)
    monkeypatch.setattr(fork_link, "leader_settings", nullcontext)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(link.start)
        try:
            with pytest.raises(ForkServerError, match="too many open files"):
                started.result(PATIENCE)
        finally:
            link._is_known.set()  # a test that fails ends, too
    link.end()


def test_two_tasks_at_once_have_two_servers(tmp_path: Path, packages: Path) -> None:
    """A task never waits for another's server, and beyond the limit it starts cold."""
    with ForkingExecutor(servers=2) as executor:
        tasks = [task_of(tmp_path / str(number), packages, TREE) for number in range(3)]
        watched = [Watched(executor, task) for task in tasks]
        found = [each.supervised(task) for each, task in zip(watched, tasks, strict=True)]
        assert len({supervised.pid for supervised in found}) == 3
        for each in watched:
            each.cancelled.set()
        endings = [each.ending() for each in watched]
        assert sorted(ending.start for ending in endings) == ["cold", "fork torch", "fork torch"]
        assert {ending.stopped_by for ending in endings} == {"interrupt"}
        assert len([ending for ending in endings if "at work" in ending.cold_because]) == 1
        forked(executor, task_of(tmp_path / "after", packages, ""))  # a cancelled task leaves its server
    assert until(lambda: not any(is_alive(supervised.pid) for supervised in found))


def test_least_recently_used_server_ends(tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more servers live than may, and one that was used often makes room for another."""
    monkeypatch.setattr(executors, "USES", 2)
    with ForkingExecutor(servers=1) as executor:
        parents = []
        for number, logs in enumerate(("a", "b", "b", "b")):
            text = "print(os.getppid())"
            forked(executor, task_of(tmp_path / str(number), packages, text, env={"TORCH_LOGS": logs}))
            parents.append(int((tmp_path / str(number) / "out").read_text()))
        assert len(set(parents)) == 3
        assert parents[1] == parents[2]
        assert [is_alive(pid) for pid in parents] == [False, False, False, True]
    assert not is_alive(parents[3])


@pytest.mark.parametrize("how", ["interrupt", "supervisor"])
def test_what_ends_forks_and_servers(tmp_path: Path, packages: Path, how: str) -> None:
    """An interrupt ends what runs, with its server, and starts nothing else; a supervisor's death ends its own."""
    with ForkingExecutor() as executor:
        task, later = task_of(tmp_path / "first", packages, TREE), task_of(tmp_path / "second", packages, "")
        watched = Watched(executor, task)
        supervised = watched.supervised(task)
        pids = family(supervised.pid)
        assert len(pids) == 4
        if how == "interrupt":
            executor.interrupt()
            assert watched.ending().stopped_by == "interrupt"
            assert executor.run(later) is None
        else:
            os.kill(supervised.pid, signal.SIGKILL)
            assert "the supervisor died" in watched.ending().problem
            forked(executor, later)
        assert until(lambda: not any(map(is_alive, [supervised.pid, *pids])))


TOOL = """
import sys
sys.path.insert(0, {root!r})
from tests.process.test_fork_server import *
folder, packages = Path({folder!r}), Path({packages!r})
executor = ForkingExecutor()
executor.run(task_of(folder / "idle", packages, "", env={{"TORCH_LOGS": "idle"}}, mark=marks.mark_for(folder, "1")))
executor.run(task_of(folder / "busy", packages, TREE, mark=marks.mark_for(folder, "2")))
"""


def _start_tool(folder: Path, packages: Path) -> tuple[subprocess.Popen[bytes], set[int]]:
    """Start a tool with an idle server and a running task; return it and all its processes."""
    text = TOOL.format(root=str(ROOT), folder=str(folder), packages=str(packages))
    environ = os.environ | {"TMPDIR": str(folder)}  # with the supervisors killed, too, nobody clears up there
    tool = subprocess.Popen([sys.executable, "-c", text], env=environ)
    out = folder / "busy" / "out"
    assert until(lambda: out.exists() and "ready" in out.read_text())
    return tool, family(tool.pid)


def test_killing_the_tool_leaves_no_server(tmp_path: Path, packages: Path) -> None:
    """`kill -9` of the tool ends supervisors, servers and forks."""
    tool, pids = _start_tool(tmp_path, packages)
    assert len(pids) == 2 + 2 + 3
    tool.kill()
    tool.wait()
    assert until(lambda: not any(map(is_alive, pids)))


def test_sweep_finds_forks_without_owner(tmp_path: Path, packages: Path) -> None:
    """When tool and supervisors are killed, the next run finds servers and forks by the servers' marks."""
    tool, pids = _start_tool(tmp_path, packages)
    supervisors = {pid for pid in pids if b"supervisor_program" in Path(f"/proc/{pid}/cmdline").read_bytes()}
    assert len(supervisors) == 2
    for pid in [*supervisors, *(server for server in pids if _is_server(server))]:
        os.kill(pid, signal.SIGSTOP)  # so that none sees another die
    tool.kill()
    tool.wait()
    for pid in supervisors:
        os.kill(pid, signal.SIGKILL)
    assert until(lambda: not any(map(is_alive, supervisors)))
    assert all(map(is_alive, pids - supervisors))
    marks.sweep_left_behind(tmp_path)
    assert until(lambda: not any(map(is_alive, pids)))


def _is_server(pid: int) -> bool:
    """Return whether a process is a fork server: what is forked from it has no socket to be asked on."""
    links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    is_named = b"fork_server.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return is_named and any(link.startswith("socket:") for link in links)
