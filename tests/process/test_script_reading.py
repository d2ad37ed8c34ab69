"""A script finds torch imported only where its text says that this changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichtorch.matrix.process.script_reading import read_script

ROOT = Path(__file__).resolve().parents[2]
FORKED = {
    "import torch": "torch",
    '"""A docstring."""\nfrom __future__ import annotations\nimport os, numpy as np\nimport torch.nn as nn\n'
    "os.environ['A'] = 'b'": "torch",
    "N = 3\nNAMES = ('a', 'b')\ndef f(x: int) -> None: ...\nclass C:\n    x = 1\nfrom torch import ones": "torch",
    "try:\n    import torch\nexcept ImportError: pass": "torch",
    "import torch\nnet.modules()": "torch",
    "import re, torch\nre.compile('x')": "torch",
    "import torch\nf = torch.compile(f, backend='eager')": "dynamo",
    "import torch\nfrom torch.export import export": "dynamo",
    "import torch\ntorch.optim.SGD([x]).step()": "dynamo",
    "import torch\ntorch.testing.assert_close(1, 1)": "torch",
    "import torch\ntorch.compile(f)": "inductor",
    "import torch\n@torch.compile\ndef f(): ...": "inductor",
    "import torch\n@torch.compile(dynamic=True)\ndef f(): ...": "inductor",
    "import torch\ntorch.compile(f, backend=chosen)": "inductor",
    "import torch\nfrom torch._inductor import config": "inductor",
    # what is set later acts on the compilers' modules, which are imported later
    "import os, torch\nos.environ['TORCHINDUCTOR_X'] = '1'\ntorch.compile(f)": "torch",
    "import os, torch\nos.environ |= {}\ntorch.compile(f)": "torch",
    "import os, torch\nos.putenv('A', 'b')\ntorch.compile(f)": "torch",
    "import torch\ntorch.set_default_device('meta')\ntorch.compile(f)": "torch",
    "import beside\nimport torch": "torch",
    "import brings_torch": "torch",
    "import torch\nimport compiles": "inductor",
}
COLD = {
    "print(1)": "does something",
    "import os": "does not import torch",
    "def f():\n    import torch\nf()": "does something",
    "import os\nos.environ['A'] = 'b'\nimport torch": "line 2",
    "import os\nos.environ.setdefault('A', 'b')\nimport torch": "line 2",
    "import warnings\nwarnings.simplefilter('error')\nimport torch": "line 2",
    "import sys\nsys.path.insert(0, 'x')\nimport torch": "line 2",
    "X = f()\nimport torch": "line 1",
    "@f\ndef g(): ...\nimport torch": "line 2",
    "class C(metaclass=M): ...\nimport torch": "line 1",
    "if x:\n    import torch": "line 1",
    "import scipy\nimport torch": "imports scipy before torch",
    "from . import x\nimport torch": "before torch",
    "import acts\nimport torch": "does something",
    "import sys, torch\nsys.modules.pop('torch')": "sys.modules",
    "from sys import modules\nimport torch": "sys.modules",
    "import importlib, torch\nimportlib.reload(torch)": "reload",
    "import torch\nimport sys\nsys.meta_path.append(1)": "meta_path",
    "import torch\nif": "cannot be read",
}
MODULES = {
    "beside.py": "X = 1",
    "acts.py": "print(1)",
    "brings_torch/__init__.py": "import torch\nprint(1)",
    "compiles.py": "import torch, script\nf = torch.compile(print)",
}


def _write(folder: Path, text: str) -> Path:
    for name, content in (MODULES | {"script.py": text}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return folder / "script.py"


@pytest.mark.parametrize(("text", "level"), FORKED.items())
def test_level(tmp_path: Path, text: str, level: str) -> None:
    """What does nothing before its import of torch may find imported what it uses."""
    reading = read_script(_write(tmp_path, text))
    assert (reading.level, reading.cold_because) == (level, "")


@pytest.mark.parametrize(("text", "because"), COLD.items())
def test_cold(tmp_path: Path, text: str, because: str) -> None:
    """What does something before, or looks at imports, starts as ever, and it is said why."""
    reading = read_script(_write(tmp_path, text))
    assert reading.level == ""
    assert because in reading.cold_because


def test_no_script() -> None:
    """What cannot be read is started, too: the interpreter says what is wrong."""
    assert "cannot be read" in read_script(Path("/no/such/script.py")).cold_because


def test_bundled_scenarios() -> None:
    """Most scripts of the suite can be forked."""
    readings = [read_script(path) for path in sorted((ROOT / "scenarios").glob("*/*.py"))]
    assert sum(bool(reading.level) for reading in readings) > len(readings) / 2
