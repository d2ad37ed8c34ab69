"""A loop of Python that repeats its state is stopped within seconds, and one that could end never is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import PATIENCE
from tests.process.running import begin, until
from whichtorch.hangs.busy_loop import busy_loop
from whichtorch.inside.startup import FOLDER
from whichtorch.process import kernel
from whichtorch.process.evidence import loop_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from whichtorch.process.supervision import Ending, Supervised

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and Linux's signals")
ASKED = 24  # times that a loop that could end is asked where it is
OFTEN = 1000  # times that an endless one is asked, at most: some can be read at few of their moments
UP = "open('up', 'w').close()\n"
PAUSE = 0.001  # seconds between two questions


ENDLESS = {
    "pass": "while True: pass\n",
    "flag": "done = False\nwhile not done:\n    x = 1\n",
    "same_numbers": "a, b = 0, 1\nwhile a < 10:\n    a, b = a % 3, b\n",
    "large_values": "n, text = 10**5000, 'é' * 10**6\nwhile n:\n    n = n + 0\n",
    "in_function": "def f(limit):\n    n = 0\n    while n < limit:\n        n = min(n + 1, 3)\nf(5)\n",
    "method": (
        "class Model:\n    def __init__(self):\n        self.done, self.rows = False, [1, 2]\n"
        "    def go(self):\n        self.rows.sort()\nmodel = Model()\nwhile not model.done:\n    model.go()\n"
    ),
    "inner_loop": "while True:\n    for i in range(3):\n        x = i\n",
    "modules": "import math, package.inner\nwhile math.sqrt(4) > package.inner.n:\n    x = math.pi\n",
    "import_within": "def f():\n    import math\n    return math.sqrt(4)\nwhile f() > 0:\n    pass\n",
    "slots": (
        "class A:\n    __slots__ = ('__n', 'unset')\n    def __init__(self):\n        self.__n = 1\na = A()\n"
        "while a:\n    pass\n"
    ),
    "named_tuple": (
        "import typing\nclass Row(typing.NamedTuple):\n    n: int\ndef go():\n    return Row(1)\n"
        "while go().n:\n    pass\n"
    ),
    "caught": "while True:\n    try:\n        {}['missing']\n    except KeyError:\n        pass\n",
    "default_dict": (
        "import collections\nheld = collections.defaultdict(list)\nwhile not held[0]:\n    held[0].sort()\n"
    ),
    "closure": (
        "def f():\n    done = False\n    def ask():\n        return done\n    while not ask():\n        pass\nf()\n"
    ),
}
LONG = 8.0  # seconds in which a loop that could end is asked several times
BUSY_BUT_OPEN = {
    "counter": "n = 0\nwhile n < 10**12:\n    n += 1\n",
    "large_number": "n = 10**5000\nwhile n:\n    n += 1\n",
    "attribute": "class A: pass\na = A()\na.n = 0\nwhile a.n < 10**12:\n    a.n += 1\n",
    "of_class": "class A:\n    n = 0\nwhile A.n < 10**12:\n    A.n += 1\n",
    "slots": "class A:\n    __slots__ = ('n',)\na = A()\na.n = 0\nwhile a.n < 10**12:\n    a.n += 1\n",
    "of_module": "import holder\nwhile holder.n < 10**12:\n    holder.n += 1\n",
    "module_as_argument": (
        "import holder\ndef go(m):\n    m.n += 1\n    return m.n\nwhile go(holder) < 10**12:\n    pass\n"
    ),
    "global": "n = 0\ndef go():\n    global n\n    n += 1\nwhile n < 10**12:\n    go()\n",
    "nonlocal": (
        "def f():\n    n = 0\n    def go():\n        nonlocal n\n        n += 1\n        return n\n"
        "    while go() < 10**12:\n        pass\nf()\n"
    ),
    "default": "def go(held=[0]):\n    held[0] += 1\n    return held[0]\nwhile go() < 10**12:\n    pass\n",
    "on_function": "def go():\n    go.n += 1\n    return go.n\ngo.n = 0\nwhile go() < 10**12:\n    pass\n",
    "iterator": "numbers = iter(range(10**12))\nwhile next(numbers, None) is not None:\n    pass\n",
    "count": "import itertools\nnumbers = itertools.count()\nwhile numbers.__next__() < 10**12:\n    pass\n",
    "generator": (
        "def steps():\n    for n in range(10**12):\n        yield n\nsteps = steps()\n"
        "while steps.send(None) < 10**11:\n    pass\n"
    ),
    "within_for": "for n in iter(range(10**9)):\n    while True:\n        if n >= 0: break\n",
    "for_of_iterator": "while True:\n    for n in zip(range(10**12)):\n        pass\n    break\n",
    "for_of_equal": "while True:\n    for n in bytes(10**8):\n        pass\n    break\n",
    "called_within_for": "def go():\n    n = 0\n    while n < 3:\n        n += 1\nfor _ in range(10**12):\n    go()\n",
    "within_generator": (
        "def go():\n    n = 0\n    while True:\n        yield n\n        n = 0\nfor _ in go():\n    pass\n"
    ),
    "time": "import time\nend = time.monotonic() + 10**6\nwhile time.monotonic() < end:\n    pass\n",
    "time_within": "from time import time\ndef late():\n    return time() > 2**40\nwhile not late():\n    pass\n",
    "date": "import datetime\nwhile datetime.datetime.now().year < 9000:\n    pass\n",
    "file": "import os\nwhile not os.path.exists('done'):\n    pass\n",
    "read": (
        "def asked():\n    with open('/proc/uptime') as file:\n        return file.read()\n"
        "while asked() != 'done':\n    pass\n"
    ),
    "pathlib": "import pathlib\nplace = pathlib.Path('done')\nwhile not place.exists():\n    pass\n",
    "environment": "import os\nwhile os.environ.get('NO_SUCH') is None:\n    pass\n",
    "thread": (
        "import threading, time\ndone = []\ndef end():\n    time.sleep(10**6)\n    done.append(1)\n"
        "threading.Thread(target=end, daemon=True).start()\nwhile not done:\n    pass\n"
    ),
    "timer": (
        "import threading\ndone = False\ndef end():\n    global done\n    done = True\n"
        "timer = threading.Timer(10**6, end)\ntimer.daemon = True\ntimer.start()\nwhile not done:\n    pass\n"
    ),
    "signal": (
        "import signal\ndone = False\ndef end(*_):\n    global done\n    done = True\n"
        "signal.signal(signal.SIGALRM, end)\nsignal.alarm(10**6)\nwhile not done:\n    pass\n"
    ),
    "own_signal": (
        "import signal\ndone = False\ndef end(*_):\n    global done\n    done = True\n"
        "signal.signal(signal.SIGRTMIN + 1, end)\nwhile not done:\n    pass\n"
    ),
    "child": "import subprocess\nchild = subprocess.Popen(['sleep', '60'])\nwhile child.poll() is None:\n    pass\n",
    "random": "import random\nwhile random.random() < 1:\n    pass\n",
    "metaclass": (
        "class Meta(type):\n    n = 0\n    def __bool__(cls):\n        Meta.n += 1\n        return Meta.n < 10**12\n"
        "class Flag(metaclass=Meta):\n    pass\nwhile Flag:\n    pass\n"
    ),
    "of_class_with_native_base": (
        "class Steps(dict):\n    n = 0\n    @classmethod\n    def go(cls):\n        cls.n += 1\n        return cls.n\n"
        "while Steps.go() < 10**12:\n    pass\n"
    ),
    "native_module": (
        "import math, sys, types\nsys.modules['simulator'] = own = types.ModuleType('simulator')\n"
        "own.__file__, math.sqrt.__module__ = '/home/user/simulator.so', 'simulator'\nown.step = math.sqrt\n"
        "while own.step(4):\n    pass\n"
    ),
    "cache": (
        "import functools\n@functools.lru_cache\ndef same(x):\n    return x\n"
        "while same.cache_info().hits < 10**12:\n    same(1)\n"
    ),
    "own_random": "import random\ndice = random.Random(1)\nwhile dice.random() < 1:\n    pass\n",
    "gc_callback": (
        "import gc\ndone = False\ndef end(phase, info):\n    global n\n    n = phase\ngc.callbacks.append(end)\n"
        "while not done:\n    x = [[]]\n"
    ),
    "weakref": (
        "import weakref\nclass A: pass\nheld = A()\nheld.self = held\nshown = weakref.ref(held)\ndel held\n"
        "while shown() is not None:\n    pass\n"
    ),
    "finaliser": (
        "done = False\nclass A:\n    def __del__(self):\n        global done\n        done = True\n"
        "a = A()\nwhile not done:\n    pass\n"
    ),
    "trace": "import sys\nsys.settrace(lambda *_: None)\ndone = False\nwhile not done:\n    pass\n",
    "shared_memory": ("import mmap\nshared = mmap.mmap(-1, 8)\nwhile shared[0] == 0:\n    pass\n"),
    "ctypes": "import ctypes\nn = ctypes.c_long(0)\nwhile n.value < 10**12:\n    n.value += 1\n",
    "deep_in_calls": (
        "def collatz(n):\n    while n != 0:\n        n += 1\n    return n\nwhile True:\n    if collatz(1) == 0: break\n"
    ),
    "recursion": (
        "def go(depth):\n    if depth:\n        return go(depth - 1)\n    return 0\nn = 0\n"
        "while n < 10**12:\n    go(n % 50)\n    n += 1\n"
    ),
    "exec": "n = [0]\nwhile True:\n    exec('n[0] += 1')\n    if n[0] > 10**12: break\n",
    "import_within": "def late():\n    import time\n    return time.time() > 2**40\nwhile not late():\n    pass\n",
    "from_within": "def late():\n    from time import time\n    return time() > 2**40\nwhile not late():\n    pass\n",
    "globals": "n = 0\ndef go():\n    globals()['n'] += 1\nwhile not go():\n    pass\n",
    "globals_of_function": "n = 0\ndef go():\n    go.__globals__['n'] += 1\nwhile not go():\n    pass\n",
    "vars": "import holder\nwhile True:\n    vars(holder)['n'] += 1\n",
    "getattr": "import holder\nwhile True:\n    setattr(holder, 'n', getattr(holder, 'n') + 1)\n",
    "namespace": "import holder\nwhile True:\n    holder.__dict__['n'] += 1\n",
    "submodule": "import package.inner\nwhile package.inner.n < 10**12:\n    package.inner.n += 1\n",
    "held_module": (
        "import holder\nclass A: pass\na = A()\na.module = holder\nwhile a.module.n < 10**12:\n    a.module.n += 1\n"
    ),
    "private_slots": (
        "class A:\n    __slots__ = ('__n',)\n    def __init__(self):\n        self.__n = 0\n"
        "    def go(self):\n        self.__n += 1\n        return self.__n\na = A()\nwhile a.go() < 10**12:\n    pass\n"
    ),
    "property": (
        "import time\nclass A:\n    @property\n    def late(self):\n        return time.time() > 2**40\n"
        "a = A()\nwhile not a.late:\n    pass\n"
    ),
    "alarm": "import signal\nsignal.alarm(600)\nwhile True:\n    pass\n",
    "timer_of_process": "import signal\nsignal.setitimer(signal.ITIMER_VIRTUAL, 600)\nwhile True:\n    pass\n",
    "fresh_random": "import random\nwhile random.Random().random() < 1:\n    pass\n",
    "fresh_random_class": "from random import Random\nwhile Random().random() < 1:\n    pass\n",
    "random_of_system": "import random\ndice = random.SystemRandom()\nwhile dice.random() < 1:\n    pass\n",
    "cached": (
        "import functools\nn = [0]\n@functools.lru_cache\ndef go():\n    n[0] += 1\nwhile n[0] < 10**12:\n"
        "    go.cache_clear()\n    go()\n"
    ),
    "factory": (
        "import collections, itertools\nheld = collections.defaultdict(itertools.count().__next__)\n"
        "while held[0] < 10**12:\n    held.clear()\n"
    ),
    "async": (
        "import asyncio\nasync def main():\n    loop = asyncio.get_running_loop()\n"
        "    while loop.time() < 10**9:\n        pass\nasyncio.run(main())\n"
    ),
    "decorated": (
        "import contextlib\nn = 0\n@contextlib.contextmanager\ndef go():\n    global n\n    n += 1\n    yield n\n"
        "def main():\n    while True:\n        with go() as at:\n            if at > 10**12: break\n"
        "        del at\nmain()\n"
    ),
    "mapped": ("def go(x):\n    return x\nrows = [1]\nwhile rows:\n    list(map(go, rows * 10**8))\n    rows = 0\n"),
    "sorted_by_key": (
        "def go(x):\n    return x\nrows = [1]\nwhile rows:\n    max(rows * 10**8, key=go)\n    rows = 0\n"
    ),
    "range_changed": "left = 1\nwhile left:\n    for i in range(10**12):\n        i = 0\n    left = 0\n",
    "precision": ("from decimal import getcontext\nwhile getcontext().prec < 10**12:\n    getcontext().prec += 1\n"),
    "regular_expression": f"import re\n{UP}while True:\n    re.match('(a+)+b', 'a' * 26)\n    break\n",
    "compared_one_by_one": (
        "class A:\n    def __eq__(self, other):\n        return True\ndef rows():\n    return [A()] * 10**8\n"
        "while True:\n    rows() == rows()\n    break\n"
    ),
    "inlined_comprehension": "def go(x):\n    return x\nwhile True:\n    [go(x) for x in [0] * 10**8]\n    break\n",
    "order_of_dict": (
        "import collections\nrows = collections.OrderedDict.fromkeys(range(3000))\nwhile list(rows)[0] != 2999:\n"
        "    sum(range(10**6))\n    rows.move_to_end(list(rows)[0])\n"
    ),
    "next_of_set": (
        "rows = set(range(3000))\ndef go():\n    row = rows.pop()\n    rows.add(row)\n    return row\n"
        "while go() != 2999:\n    sum(range(10**6))\n"
    ),
    "dispatched": (
        "import functools\n@functools.singledispatch\ndef go(x):\n    pass\n@go.register(int)\n"
        "def _(x, held=[0]):\n    held[0] += 1\n    return held[0]\ndel _\nwhile go(1) < 10**12:\n    pass\n"
    ),
    "lazy_module": (
        "import holder, types\nclass Lazy(types.ModuleType):\n    count = 0\n    @property\n    def n(self):\n"
        "        Lazy.count += 1\n        return Lazy.count\nholder.__class__ = Lazy\n"
        "while holder.n < 10**12:\n    pass\n"
    ),
    "list": "rows = [0]\nwhile rows[-1] < 10**12:\n    rows.append(rows[-1] + 1)\n    del rows[:-50]\n",
}

CHILD_ENDS_IT = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
if (pid := os.fork()) == 0:
    os.execvp('sleep', ['sleep', '60'])
done = False
while not done:
    pass
"""


WAITS_BESIDE_THREAD = (
    "import threading, time\ndef count():\n    n = 0\n    while n < 10**12:\n        n += 1\n"
    "threading.Thread(target=count).start()\ntime.sleep(60)\n"
)


def environ_of(folder: Path) -> dict[str, str]:
    """Return the variables of a cell whose stacks go to a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PYTHONPATH": str(FOLDER), "WHICHTORCH_STACKS": str(folder)}


def answers_of(folder: Path, program: str, times: int = ASKED) -> list[dict[str, Any]]:
    """Run a program, and return what it answers, once it is up, until its answers show a state that repeats."""
    (folder / "script.py").write_text(program if UP in program else UP + program)
    (folder / "holder.py").write_text("n = 0\n")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "inner.py").write_text("n = 0\n")
    command = [sys.executable, str(folder / "script.py")]
    with subprocess.Popen(command, env=environ_of(folder), cwd=folder, stderr=subprocess.PIPE) as process:
        try:
            file = folder / f"{process.pid}.loop.jsonl"
            assert until((folder / "up").exists)
            assert kernel.catches(process.pid, loop_watch.LOOP_SIGNAL)
            answers: list[dict[str, Any]] = []
            for asked in range(times):
                kernel.send(process.pid, loop_watch.LOOP_SIGNAL)
                assert until(partial(has_answered, process, file, asked))
                if process.poll() is not None:  # garbage collection may end a loop at any time
                    assert process.returncode == 0, process.stderr.read().decode() if process.stderr else ""
                    break
                answers = [json.loads(line) for line in read(file)]
                if most_often(answers) >= loop_watch.SHOWN:
                    break
                time.sleep(PAUSE)
            return answers
        finally:
            process.kill()


def has_answered(process: subprocess.Popen[bytes], file: Path, before: int) -> bool:
    """Return whether there are more answers than before, or never will be."""
    return len(read(file)) > before or process.poll() is not None


def read(file: Path) -> list[str]:
    """Return the whole lines that a file holds so far."""
    return file.read_text().rpartition("\n")[0].splitlines() if file.exists() else []


def most_often(answers: list[dict[str, Any]]) -> int:
    """Return how often the state that was seen most often was seen at one place."""
    seen = Counter((answer["place"], answer["state"]) for answer in answers if answer["state"] is not None)
    return max(seen.values(), default=0)


@pytest.mark.parametrize("name", ENDLESS)
def test_a_state_that_repeats_is_seen(tmp_path: Path, name: str) -> None:
    """The same state at the same place is seen again and again of a loop that nothing can end."""
    answers = answers_of(tmp_path, ENDLESS[name], times=OFTEN)
    assert most_often(answers) >= loop_watch.SHOWN, {answer["hidden"] for answer in answers}


@pytest.mark.parametrize("name", BUSY_BUT_OPEN)
def test_a_loop_that_could_end_does_not_repeat(tmp_path: Path, name: str) -> None:
    """Whatever can end it either changes the state, or makes the state one that cannot be seen."""
    answers = answers_of(tmp_path, BUSY_BUT_OPEN[name])
    assert most_often(answers) < loop_watch.SHOWN


def supervised(folder: Path, program: str, **fields: Any) -> Supervised:
    """Start a program as an attempt's task."""
    folder.mkdir(parents=True)
    (folder / "script.py").write_text(program)
    (folder / "stacks").mkdir()
    given: dict[str, Any] = {
        "argv": (sys.executable, str(folder / "script.py")),
        "env": environ_of(folder / "stacks"),
        "stacks": str(folder / "stacks"),
        "timeout": PATIENCE,
        "stall": True,
        "sample": True,
    }
    return begin(folder, "spins", **given | fields)


def asked_often(folder: Path, program: str) -> Ending:
    """Run a program, longer and longer until it gave several answers, and return how it ended."""
    for seconds in (LONG, 3 * LONG, 9 * LONG):
        ending = supervised(folder / f"{seconds:g}", program, timeout=seconds, is_hard=True).wait()
        if ending.loop and len(ending.loop.answers) >= loop_watch.SHOWN:
            break
    return ending


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Callable[[], Ending]]]:
    """Start programs side by side, and return what waits for the end of each."""
    folder = tmp_path_factory.mktemp("loops")
    started = {
        "endless": supervised(folder / "endless", ENDLESS["same_numbers"], is_hard=True),
        "waits": supervised(folder / "waits", WAITS_BESIDE_THREAD, timeout=LONG, is_hard=True),
        "measured": supervised(folder / "measured", ENDLESS["same_numbers"], timeout=LONG, is_measured=True),
    }
    asked = {"counts": "n = 0\nwhile n < 10**12:\n    n += 1\n", "beside_child": CHILD_ENDS_IT}
    with ThreadPoolExecutor(len(asked)) as pool:
        endings: dict[str, Callable[[], Ending]] = {name: each.wait for name, each in started.items()}
        endings |= {name: pool.submit(asked_often, folder / name, text).result for name, text in asked.items()}
        yield endings
        for each in started.values():
            each.interrupt()
            each.wait()


@pytest.mark.thorough
@pytest.mark.xdist_group("loop_watch")
def test_an_endless_loop_is_stopped(running: dict[str, Callable[[], Ending]]) -> None:
    """It is stopped as a stall is, with its stacks, and told by its own loop."""
    ending = running["endless"]()
    assert ending.stopped_by == "stall", ending
    loop = busy_loop(ending.loop, ending.seconds) if ending.loop else None
    assert loop is not None
    assert (loop.repeats, loop.moves, loop.place) == (True, False, "script.py:2")
    assert loop.words.startswith("busy in `while a < 10` (script.py:2) for ")


@pytest.mark.thorough
@pytest.mark.xdist_group("loop_watch")
def test_a_loop_that_counts_is_not_stopped(running: dict[str, Callable[[], Ending]]) -> None:
    """It has all of its time, and its variable is told to move."""
    ending = running["counts"]()
    assert (ending.stopped_by, ending.seconds >= LONG) == ("timeout", True), ending
    loop = busy_loop(ending.loop, ending.seconds) if ending.loop else None
    assert loop is not None
    assert (loop.repeats, loop.moves) == (False, True)
    assert "still changing, perhaps only slow: `n` " in loop.words


@pytest.mark.thorough
@pytest.mark.xdist_group("loop_watch")
def test_a_process_whose_numbers_are_measured_is_not_asked(running: dict[str, Callable[[], Ending]]) -> None:
    """Its answers would take some of its own time, so its endless loop is not found, and runs to the timeout."""
    ending = running["measured"]()
    assert (ending.stopped_by, ending.loop) == ("timeout", None), ending


@pytest.mark.thorough
@pytest.mark.xdist_group("loop_watch")
def test_a_loop_beside_another_process_is_not_stopped(running: dict[str, Callable[[], Ending]]) -> None:
    """Another process of the tree may end the loop in ways that its state does not show."""
    ending = running["beside_child"]()
    assert ending.loop is not None
    assert (ending.stopped_by, ending.loop.repeats) == ("timeout", False), ending
    assert {answer.hidden for answer in ending.loop.answers} == {"other processes, or threads of C code, run"}


@pytest.mark.thorough
@pytest.mark.xdist_group("loop_watch")
def test_a_main_thread_that_waits_is_not_asked(running: dict[str, Callable[[], Ending]]) -> None:
    """The answer would be no evidence of a loop, and the signal would wake what may be in a stall."""
    ending = running["waits"]()
    assert ending.loop is not None
    assert (ending.stopped_by, ending.loop.answers) == ("timeout", ()), ending


def test_a_question_that_cannot_be_answered_is_asked_again(tmp_path: Path) -> None:
    """A process that is amid the import of what the answer needs says so, and answers the next question."""
    program = f"import sys, time\nsys.modules['zlib'] = None\n{UP}end = time.monotonic() + 0.05\n"
    program += "while time.monotonic() < end: pass\ndel sys.modules['zlib']\ndone = False\nwhile not done: pass\n"
    answers = answers_of(tmp_path, program, times=OFTEN)
    assert answers[0]["hidden"] == "the process could not answer"
    assert most_often(answers) >= loop_watch.SHOWN


def test_a_question_while_no_line_of_python_runs_raises_nothing(tmp_path: Path) -> None:
    """Python calls a handler without a frame while it prints the exception that ends a script, which is not lost."""
    program = f"import signal; signal.getsignal({loop_watch.LOOP_SIGNAL})({loop_watch.LOOP_SIGNAL}, None)"
    subprocess.run([sys.executable, "-c", program], env=environ_of(tmp_path), check=True)
    (file,) = tmp_path.glob("*.loop.jsonl")
    assert [json.loads(line)["hidden"] for line in read(file)] == ["the process could not answer"]


def test_a_state_too_large_is_not_read(tmp_path: Path) -> None:
    """A loop that holds a million numbers is answered for at once, and the answer says why its state is not known."""
    program = f"from collections import deque\nrows = deque([0] * 10**6)\n{UP}while rows:\n    pass\n"
    last = answers_of(tmp_path, program)[-1]
    assert (last["hidden"], last["frames"][0]["values"]) == ("its state is too large", {"rows": [None, ""]})


def test_a_question_to_an_interpreter_that_ends_does_not_kill_it(tmp_path: Path) -> None:
    """The signal may come after the interpreter has given its handlers back; the exit code stays the script's."""
    (tmp_path / "script.py").write_text(
        "import os, time\nclass Last:\n    def __del__(self, open=open, sleep=time.sleep):\n"
        f"        {UP}        sleep(0.5)\nlast = Last()\n"
    )
    command = [sys.executable, str(tmp_path / "script.py")]
    with subprocess.Popen(command, env=environ_of(tmp_path), cwd=tmp_path) as process:
        assert until((tmp_path / "up").exists)
        assert not kernel.catches(process.pid, loop_watch.LOOP_SIGNAL)
        kernel.send(process.pid, loop_watch.LOOP_SIGNAL)
        assert process.wait() == 0
