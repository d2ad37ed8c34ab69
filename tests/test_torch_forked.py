"""Real torch, forked and cold: the same ending."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.real_torch import run_of
from whichtorch.inside.startup import FOLDER
from whichtorch.process.executor import ForkingExecutor, LocalExecutor
from whichtorch.process.supervision import Ending, Task

pytestmark = pytest.mark.torch

SCRIPTS = {
    "torch": "print((torch.ones(2) + 1).sum())",
    "raises": "torch.ones(2) + torch.ones(3)",
    "threads": "torch.set_num_threads(2)\nprint(torch.mm(torch.ones(300, 300), torch.ones(300, 300)).sum())",
    "hangs": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "forks": "import os\ntorch.set_num_threads(2)\nx = torch.ones(500, 500)\nx @ x\n"
    "if not os.fork():\n    os._exit(0)\nos.wait()",
    "loads": "from torch.utils.data import DataLoader\n"
    "if __name__ == '__main__':\n    print(list(DataLoader(range(4), num_workers=1)))",
    "dynamo": "def f(x):\n    return torch.relu(x) + 1\nprint(torch.compile(f, backend='eager')(torch.ones(2)))",
    "dynamo raises": "def f(x):\n    return x + torch.ones(3)\ntorch.compile(f, backend='eager')(torch.ones(2))",
    "inductor": "def f(x):\n    return torch.relu(x) + 1\nprint(torch.compile(f)(torch.ones(2)))",
}


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of an environment in the project's own state."""
    (environment,) = run_of(tmp_path_factory.mktemp("run"), "meta/nonzero")["environments"]
    return str(Path(environment["interpreter"]).expanduser())


def test_forked_torch_shows_the_same(tmp_path: Path, interpreter: str) -> None:
    """Outcome and words of each script are those of a cold start."""
    cold = LocalExecutor()
    with ForkingExecutor(servers=3) as forking:
        for name, text in SCRIPTS.items():
            folder = tmp_path / name
            (folder / "tmp").mkdir(parents=True)
            (folder / "script.py").write_text(f"import torch\n{text}\n")
            task = _task(folder, interpreter)
            ended = [
                (run(replace(task, stdout=str(folder / f"{way}.out"), stderr=str(folder / f"{way}.err"))), way)
                for way, run in (("cold", cold.run), ("fork", forking.run))
            ]
            shown = []
            for ending, way in ended:
                assert ending is not None
                assert ending.start.startswith(way), (name, ending)
                shown.append((_outcome(ending), _last_line(folder / f"{way}.err"), (folder / f"{way}.out").read_text()))
            assert shown[0] == shown[1], name


def _task(folder: Path, interpreter: str) -> Task:
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "WHICHTORCH_"))}
    environ |= {"PYTHONPATH": str(FOLDER), "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    environ |= {"TORCHINDUCTOR_VEC_ISA_OK": "0"}  # else seven programs are compiled to see what the CPU can do
    environ |= {"TMPDIR": str(folder / "tmp"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "tmp" / "inductor")}
    return Task(
        argv=(interpreter, str(folder / "script.py")),
        cwd=str(folder),
        env=environ,
        stdout=str(folder / "out"),
        stderr=str(folder / "err"),
        timeout=300.0,
        memory_mb=8000,
        stall=True,
    )


def _outcome(ending: Ending) -> tuple[object, ...]:
    return ending.stopped_by, ending.exit_code, ending.signal, ending.survivors, ending.problem


def _last_line(path: Path) -> str:
    """Return the last line without its time and process."""
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    return re.sub(r"^([A-Z])\d{4} [\d:.]+ \d+ ", r"\1 ", lines[-1]) if lines else ""
