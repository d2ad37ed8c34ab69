"""What the hook that notes functions sees of a script."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fix.packages import environment_folder
from whichtorch.fix.functions_run import FunctionsRun
from whichtorch.inside.startup import FOLDER
from whichtorch.inside.startup.note_functions import FOLDER as NOTED

TORCH = {
    "torch/__init__.py": "def before(): pass\nbefore()\nfrom torch.m import *\n",
    "torch/m.py": "import threading\ndef f(): pass\nclass C:\n    def g(self): pass\ndef at_exit(): pass\n",
    "torch/late.py": "def h(): pass\n",
}
SCRIPT = """
import atexit, os, threading, torch
atexit.register(torch.at_exit)
def mine(): torch.f()
for _ in range(3): mine()
thread = threading.Thread(target=torch.C().g); thread.start(); thread.join()
if not os.fork():
    import torch.late
    torch.late.h()
    os._exit(0)
os.wait()
"""


def test_noted(tmp_path: Path) -> None:
    """Each function of torch is noted once, with threads and children, from the end of `import torch` on."""
    interpreter = environment_folder(tmp_path / "venv", TORCH)
    folder = tmp_path / "noted"
    folder.mkdir()
    hooks = {"PYTHONPATH": str(FOLDER), "WHICHTORCH_HOOKS": "note_functions", NOTED: str(folder)}
    subprocess.run([interpreter, "-c", SCRIPT], env=os.environ | hooks, check=True)
    notes = {path.name: path.read_text() for path in folder.iterdir()}
    names = [(path, name) for path, _, name in FunctionsRun.of_notes(notes).functions]
    qualified = "C.g" if sys.version_info >= (3, 11) else "g"
    assert set(names) >= {("torch/__init__.py", "<module>"), ("torch/m.py", "f"), ("torch/m.py", qualified)}
    assert ("torch/late.py", "h") in names
    assert not {name for _, name in names} & {"before", "mine", "at_exit"}
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    ("used", "path"), [("used", "used/__init__.py"), ("used", "used.py"), ("space.used", "space/used/__init__.py")]
)
def test_whichever_of_the_packages_is_imported_is_noted(tmp_path: Path, used: str, path: str) -> None:
    """A project may have several top packages, of which a script uses one; what was imported is noted at the end."""
    interpreter = environment_folder(tmp_path / "venv", {"other/__init__.py": "", path: "def f(): pass\n"})
    (tmp_path / "noted").mkdir()
    packages = os.pathsep.join([str(tmp_path / "noted"), "other", used])
    hooks = {"PYTHONPATH": str(FOLDER), "WHICHTORCH_HOOKS": "note_functions", NOTED: packages}
    subprocess.run([interpreter, "-c", f"import {used}; {used}.f()"], env=os.environ | hooks, check=True)
    (file,), module = (tmp_path / "noted").iterdir(), "<module>"
    noted = [tuple(line.split("\t")) for line in file.read_text().splitlines()]
    assert noted == [(path, line, name) for line, name in (("1", module), ("1", "f"), ("", module))]
