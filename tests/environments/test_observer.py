"""The observer that runs inside environments: what it writes, and that the script does not notice it.

Plain Python programs in processes of their own; a package called torch stands in for the real one.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from whichtorch.inside.startup import FOLDER

# Events have the shape of torch's own; a call of `linear` leads to matmul and, in it, to mm.
FAKE_TORCH = {
    "__init__": """
class device:
    def __init__(self, type):
        self.type = type

class Tensor:
    def __init__(self, kind):
        self.device = device(kind)

def is_grad_enabled():
    return True

def linear(*tensors):
    def call():
        with events.event("aten::linear", tensors), events.event("aten::matmul", tensors):
            with events.event("aten::mm", [tensors]):
                pass
            with events.event("aten::mul", [Tensor("cpu"), 2]):
                pass
        return "result"
    return overrides.called(linear, tensors, call)

from torch import _C, autograd, events, overrides
""",
    "_C/__init__": """
from torch._C import _profiler

def _len_torch_dispatch_stack():
    return 0

def _dispatch_keys(tensor):
    return {"meta": "DispatchKeySet(Meta, ADInplaceOrView, AutogradMeta)", "cpu": "DispatchKeySet(CPU)"}[
        tensor.device.type
    ]
""",
    "_C/_profiler": """
class _ExperimentalConfig:
    def __init__(self, profile_all_threads):
        pass

def _RecordFunctionFast(name):
    from torch import events
    return events.event(name, [])
""",
    "events": """
import threading
from contextlib import contextmanager
from types import SimpleNamespace

roots, stack = [], []

@contextmanager
def event(name, inputs):
    kind = SimpleNamespace(name="TorchOp")
    made = SimpleNamespace(
        name=name, typed=(kind, SimpleNamespace(inputs=list(inputs))), start_tid=threading.get_ident(), children=[]
    )
    (stack[-1].children if stack else roots).append(made)
    stack.append(made)
    yield
    stack.pop()
""",
    "autograd/__init__": "from torch.autograd import profiler",
    "autograd/profiler": """
from types import SimpleNamespace
from torch import events

class profile:
    def __init__(self, record_shapes, use_kineto, experimental_config):
        assert (record_shapes, use_kineto) == (True, True)
        self.kineto_results = SimpleNamespace(experimental_event_tree=lambda: events.roots)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass
""",
    "overrides": """
modes = []

class TorchFunctionMode:
    def __enter__(self):
        modes.append(self)

    def __exit__(self, *error):
        modes.remove(self)

def called(function, tensors, call):
    if not modes:
        return call()
    return modes[-1].__torch_function__(lambda *args: call(), (), tensors, {})
""",
    "utils/__init__": "",
    "utils/_pytree": "tree_flatten = lambda tree: (list(tree[0]) + list(tree[1].values()), None)",
}
SCRIPT = """
import os, sys, threading
import torch
print(torch.linear(torch.Tensor("meta"), torch.Tensor("meta")), "WHICHTORCH_OBSERVE" in os.environ)
thread = threading.Thread(target=lambda: torch.events.event("aten::add", []).__enter__())
thread.start()
thread.join()
"""


@pytest.fixture
def fake_torch(tmp_path: Path) -> Path:
    """Return a folder with a package `torch` that has what the observer asks for."""
    for name, text in FAKE_TORCH.items():
        path = tmp_path / "site" / "torch" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "site"


def observe(program: str, *path: Path, file: Path) -> subprocess.CompletedProcess[str]:
    """Run a program's text as an observing attempt runs its script."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ["PYTHONPATH"] = os.pathsep.join(map(str, (FOLDER, *path)))
    environ |= {"WHICHTORCH_HOOKS": "observe", "WHICHTORCH_OBSERVE": str(file)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)


def rows_by_op(file: Path) -> dict[str, dict[str, Any]]:
    return {row["op"]: row for row in json.loads(file.read_text())["operators"]}


def test_operators_their_nesting_and_keys_are_written(tmp_path: Path, fake_torch: Path) -> None:
    """Operators get the keys and grad mode of the call that led to them, and are no more than were dispatched."""
    file = tmp_path / "observed.json"
    ended = observe(SCRIPT, fake_torch, file=file)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "result False\n", "")
    rows = rows_by_op(file)
    assert list(rows) == ["aten::linear", "aten::matmul", "aten::mm", "aten::mul", "aten::add"]
    assert rows["aten::mm"] == {
        "op": "aten::mm",
        "under": ["aten::matmul", "aten::linear"],
        "devices": ["meta"],
        "keys": ["ADInplaceOrView", "AutogradMeta", "Meta"],
        "keys_from": "call",
        "grad_mode": True,
        "python_key": False,
        "thread": "main",
        "count": 1,
    }


def test_what_no_call_tells_is_told_apart(tmp_path: Path, fake_torch: Path) -> None:
    """Tensors made on another device than the call's count as plain; another thread's grad mode is unknown."""
    file = tmp_path / "observed.json"
    observe(SCRIPT, fake_torch, file=file)
    row = rows_by_op(file)["aten::mul"]
    assert (row["keys"], row["keys_from"]) == (["ADInplaceOrView", "AutogradCPU", "CPU"], "device")
    row = rows_by_op(file)["aten::add"]
    assert (row["thread"], row["grad_mode"], row["python_key"]) == ("other", None, None)


@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise SystemExit(3)"])
def test_the_script_ends_as_it_would(tmp_path: Path, fake_torch: Path, ending: str) -> None:
    """The observation is written however the interpreter is left."""
    file = tmp_path / "observed.json"
    assert observe(SCRIPT + ending, fake_torch, file=file).returncode == 3
    assert "aten::mm" in rows_by_op(file)


def test_a_child_is_not_observed(tmp_path: Path, fake_torch: Path) -> None:
    """Neither a fork nor a program that the script starts writes over what is seen of the script."""
    file = tmp_path / "observed.json"
    fork = "\nif os.fork() == 0:\n    torch.linear = None\n    sys.exit()\nos.wait()\n"
    start = "import subprocess\nsubprocess.run([sys.executable, '-c', 'import torch'], check=True)\n"
    assert observe(SCRIPT + fork + start, fake_torch, file=file).returncode == 0
    assert "aten::mm" in rows_by_op(file)


def test_what_the_observer_cannot_do_is_written_and_the_script_goes_on(tmp_path: Path, fake_torch: Path) -> None:
    """A torch without the profiler's parts costs the observation only."""
    (fake_torch / "torch" / "_C" / "_profiler.py").write_text("")
    file = tmp_path / "observed.json"
    ended = observe("import torch\nprint(torch.linear(torch.Tensor('meta')))", fake_torch, file=file)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "result\n", "")
    assert json.loads(file.read_text())["problem"].startswith("ImportError: cannot import name '_ExperimentalConfig'")


def test_without_torch_nothing_is_written(tmp_path: Path) -> None:
    """A script that never imports torch leaves no file."""
    file = tmp_path / "observed.json"
    assert observe("print()", file=file).returncode == 0
    assert not file.exists()
