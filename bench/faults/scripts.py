"""Scripts that misbehave: each gets its own outcome, its neighbor passes, and nothing of it stays."""

import json
from functools import partial

from bench.faults.fault import Fault, Moment
from bench.faults.ground import BrokenError, Fields, Ground
from bench.faults.silent_disk import silent_disk

HEADER = "# /// scenario\n# timeout = {timeout}\n# memory_mb = 300\n# ///\n"
DOUBLE_FORK = """
import ctypes, os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"kworker/0:1", 0, 0, 0)
        os.execve("/bin/sh", ["[kworker/0:1]", "-c", "sleep 600"], {"FAULT": os.environ["HOME"] + "/"})
    os._exit(0)
time.sleep(0.3)
"""
FORKS = """
import os, time
for _ in range(11):  # 2,048 processes at most, so that nobody else is harmed where it is not stopped
    os.fork()
    time.sleep(0.2)
time.sleep(600)
"""
STRANGE = """
import sys
sys.stdout.buffer.write(b"\\xff\\xfe\\x00\\x1b]0;title\\x07\\x1b[31mred\\x1b[2J\\r\\x08\\x7f\\xe2\\x80\\xae\\n")
raise RuntimeError("\\x1b[31mred\\x1b]0;owned\\x07 \\x00 \\u202e <script>alert(1)</script> ]]> & \\udcff")
"""
SCRIPTS: dict[str, tuple[str, set[str]]] = {  # by what it does: its source, and the outcomes that it may have
    "forks for ever": (FORKS, {"oom"}),
    "forks twice, renames itself and drops its environment": (DOUBLE_FORK, {"pass"}),
    "ignores every signal": (
        "import signal, time\nfor each in range(1, 64):\n    try: signal.signal(each, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: time.sleep(60)\n",
        {"hang"},
    ),
    "stops itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n", {"hang"}),
    "stops its whole session": ("import os, signal\nos.killpg(0, signal.SIGSTOP)\n", {"hang"}),
    "fills its memory": ("held = []\nwhile True:\n    held.append(bytearray(10_000_000))\n", {"oom"}),
    "fills stdout": ("for _ in range(3000):\n    print('line ' * 20_000)\n", {"pass"}),
    "prints 1 GB on one line": (
        "import sys\nfor _ in range(1000):\n    sys.stdout.write('x' * 1_000_000)\nsys.stdout.flush()\n",
        {"pass"},
    ),
    "leaves a file in /dev/shm": (
        "import os\nfrom multiprocessing import shared_memory\n"
        "shared_memory.SharedMemory(create=True, size=1_000_000)\nos.abort()\n",
        {"crash"},
    ),
    "uses up its file descriptors": ("held = []\nwhile True:\n    held.append(open('/dev/null'))\n", {"fail"}),
    "uses up its inotify instances": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nwhile libc.inotify_init() >= 0: pass\n",
        {"pass"},
    ),
    "closes its files": ("import os\nos.closerange(0, 256)\n", {"pass", "fail"}),
    "lets itself be traced": (
        "import ctypes, os, signal\nctypes.CDLL(None).ptrace(0, 0, 0, 0)\nos.kill(os.getpid(), signal.SIGTRAP)\n",
        {"hang"},
    ),
    "traces its parent": (
        "import ctypes, os, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.ptrace(16, os.getppid(), 0, 0)\ntime.sleep(1)\n",
        {"pass", "error", "slow"},
    ),
    "prints what is no text": (STRANGE, {"fail"}),
    "deletes its own folder": (
        "import os, shutil\nshutil.rmtree(os.path.dirname(os.environ['TMPDIR']))\nprint('gone', flush=True)\n",
        {"pass", "error"},
    ),
    "deletes its script and its folder for temporary files": (
        "import os, shutil\nos.unlink(__file__)\nshutil.rmtree(os.environ['TMPDIR'])\n",
        {"pass", "error"},
    ),
    "kills its supervisor": ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n", {"error"}),
    "kills its session": ("import os, signal\nos.killpg(0, signal.SIGKILL)\n", {"crash"}),
    "makes folders that nobody may enter": (
        "import os\nos.makedirs(os.environ['TMPDIR'] + '/' + 'a/' * 300, exist_ok=True)\n"
        "for name in 'xyz':\n    os.makedirs(os.environ['TMPDIR'] + '/' + name + '/in')\n"
        "    os.chmod(os.environ['TMPDIR'] + '/' + name, 0)\n",
        {"pass"},
    ),
    "writes 20,000 files": (
        "import os\nfor number in range(20_000):\n    open(os.environ['TMPDIR'] + f'/{number}', 'w').close()\n",
        {"pass", "slow"},
    ),
    "replaces its output by links": (
        "import os\nfolder = os.path.dirname(os.environ['TMPDIR'])\n"
        "for name in ('stdout.txt', 'stderr.txt'):\n    os.unlink(f'{folder}/{name}')\n"
        "    os.symlink('/etc/passwd', f'{folder}/{name}')\nraise RuntimeError('it')\n",
        {"fail", "error"},
    ),
    "exits with every thread busy": (
        "import os, threading\ndef spin():\n    while True: pass\n"
        "for _ in range(9):\n    threading.Thread(target=spin, daemon=True).start()\nos._exit(0)\n",
        {"pass"},
    ),
    "never ends a child in its exit handler": (
        "import atexit, subprocess\natexit.register(lambda: subprocess.run(['sleep', '600']))\n",
        {"hang"},
    ),
}


def strike(source: str, allowed: set[str], fields: Fields, ground: Ground, moment: Moment) -> None:
    """Run the script beside one that passes, perhaps with both forked, and make the reports."""
    forks = moment.dice.choice((False, True))
    beginning = "import torch\n" if forks else ""
    (ground.user.folder / "odd.py").write_text(HEADER.format(timeout=60 if source == FORKS else 8) + beginning + source)
    words = ("matrix", "--torch", "9.2.0", "odd.py", "passes.py", "--json", "result.json")
    ended = ground.give((*words, "tree.py", "writes.py") if forks else words)
    ground.check_line(ended)
    cells = json.loads((ground.user.folder / "result.json").read_text())["cells"]
    outcomes = {cell["scenario"]: cell["outcome"] for cell in cells}
    if outcomes["odd.py"] not in allowed or outcomes["passes.py"] != "pass":
        raise BrokenError(f"{outcomes}, not {allowed}: {ended.output[-1500:]}")
    reported = ground.give(("report", "--junit", "junit.xml", "--html", "page", "--markdown", "report.md"))
    ground.check_line(reported, 0)
    said = (
        ended.output + (ground.user.folder / "report.md").read_text() + (ground.user.folder / "junit.xml").read_text()
    )
    if found := {letter for letter in said if (letter < " " and letter not in "\n\t") or letter in "\x7f\u202e"}:
        raise BrokenError(f"control characters are told: {found}")
    if "root:x:0" in said + (ground.user.folder / "page" / "index.html").read_text():
        raise BrokenError("a report shows a file of the machine")
    ground.wait_until_quiet()
    ground.check_left()


def wait_for_a_silent_disk(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Run a script that no signal ends, beside one that passes: the command ends, and the record names the process."""
    folder = ground.user.folder.parent / "silent"
    source = HEADER.format(timeout=8) + f"import os\nos.stat({str(folder / 'file')!r})\n"
    (ground.user.folder / "odd.py").write_text(source)
    words = ("matrix", "--torch", "9.2.0", "odd.py", "passes.py", "--json", "result.json")
    with silent_disk(folder):
        ended = ground.give(words)
        ground.check_line(ended)
    ground.wait_until_quiet()
    cells = json.loads((ground.user.folder / "result.json").read_text())["cells"]
    found = {cell["scenario"]: (cell["outcome"], cell["attempts"][0]["note"]) for cell in cells}
    if found["odd.py"][0] != "hang" or "could not be killed" not in found["odd.py"][1]:
        raise BrokenError(f"{found['odd.py']}: {ended.output[-1500:]}")
    if found["passes.py"][0] != "pass":
        raise BrokenError(f"{found['passes.py']}: {ended.output[-1500:]}")
    ground.check_left()


FAULTS = [
    *(
        Fault("script", f"a script that {name}", partial(strike, source, allowed))
        for name, (source, allowed) in SCRIPTS.items()
    ),
    Fault("script", "a script that waits for a file system that never answers", wait_for_a_silent_disk),
]
