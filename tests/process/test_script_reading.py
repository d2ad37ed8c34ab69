"""A script finds torch imported only where its text says that this changes nothing."""

from pathlib import Path

from whichtorch.process.script_reading import read_script

ROOT = Path(__file__).resolve().parents[2]
TORCH, COMPILERS, KERNELS = "torch", "torch+compilers", "torch+compilers+kernels"
FORKED = {
    "import torch": TORCH,
    '"""A docstring."""\nfrom __future__ import annotations\nimport os\nimport torch.nn as nn\n'
    "os.environ['A'] = 'b'": TORCH,
    "N = 3\nNAMES = ('a', 'b')\ndef f(x: int) -> None: ...\nclass C:\n    x = 1\nfrom torch import ones": TORCH,
    "try:\n    import torch\nexcept ImportError: pass": TORCH,
    "import torch\nnet.modules()\nmodel.eval()\ntorch.stack([])": TORCH,
    "import re, torch\nre.compile('x')": TORCH,
    "import sys, torch\nprint(sys.argv, file=sys.stderr)\nsys.exit(1)": TORCH,
    "import numpy as np\nimport torch": "numpy+torch",
    "import torch\nimport numpy as np": TORCH,
    "import torch\nf = torch.compile(f, backend='eager')": COMPILERS,
    "import torch\n@torch.compile(dynamic=True)\ndef f(): ...": KERNELS,
    "import torch\n@torch.compile\ndef f(): ...": KERNELS,
    "import torch\n@torch.compile(backend='inductor')\ndef f(): ...": KERNELS,
    "import torch\nfrom torch.export import export": COMPILERS,
    "import re, torch\nre.compile('x')\ntorch.optim.SGD([x]).step()": COMPILERS,
    "import torch\nfrom torch._inductor import config\nconfig.cpp.threads = torch._dynamo.config.x = 1": KERNELS,
    "import torch\ntorch.optim.SGD([x]).step()": COMPILERS,
    "import torch\ntorch.testing.assert_close(1, torch.ops.aten.add(0, 1))": COMPILERS,
    # what acts on the compilers' modules, which are imported later
    "import os, torch\nos.environ['TORCHINDUCTOR_X'] = '1'\ntorch.compile(f)": TORCH,
    "import os, torch\nos.environ |= {}\ntorch.compile(f)": TORCH,
    "import os, torch\nos.putenv('A', 'b')\ntorch.compile(f)": TORCH,
    "import torch\ntorch.set_default_device('meta')\ntorch.compile(f)": TORCH,
    "import torch\ntorch.nn.Module.x = 1\ntorch.compile(f)": TORCH,
    "from torch import nn\nnn.Module.forward = None\ntorch.compile(f)": TORCH,
    "import os, torch as t\nt.add = None\nt.compile(f)": TORCH,
    "import torch.nn.functional as F\ndel F.relu\ntorch.compile(f)": TORCH,
    "import torch\nfrom torch import *\nnn.Module.forward = None\ntorch.compile(f)": TORCH,
    "import torch\nfrom torch._inductor import config as c\nc.x = 1\ntorch.compile(f)": KERNELS,
    "import torch\nsetattr(torch, 'x', 1)\ntorch.compile(f)": TORCH,
    "import torch, warnings\nwarnings.simplefilter('error')\ntorch.compile(f)": TORCH,
    # what they have registered
    "import torch\ntorch.ops.prims.add\ntorch.compile(f)": TORCH,
    # how long their imports take, and in which thread they run
    "import time, torch\ntime.monotonic()\ntorch.compile(f)": TORCH,
    "import threading, torch\ntorch.compile(f)": TORCH,
    # under which modes they are imported
    "import torch\nwith torch.device('meta'): torch.compile(f)()": TORCH,
    "import torch\n@torch.no_grad()\ndef f(): torch.compile(g)()": TORCH,
    "import torch\nwith open('x') as file: torch.compile(f)()": KERNELS,
    # nobody has read what other packages do
    "import torch, transformers\ntorch.compile(f)()": TORCH,
    "import beside\nimport torch": TORCH,
    "import brings_torch": TORCH,
    "import torch\nimport compiles": KERNELS,
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
    "import torch, sys\nsys._getframe()": "sys._getframe",
    "import torch, sys\nvars(sys)": "uses sys",
    "import torch, sys as s": "uses sys",
    "import torch, gc": "gc",
    "import torch, resource": "resource",
    "import torch\nfrom cProfile import run": "cProfile",
    "import torch\nimport traceback\ntraceback.print_stack()": "print_stack",
    "import torch, inspect\ninspect.stack()": "inspect.stack",
    "import torch, warnings\nwarnings.warn('x', stacklevel=2)": "stacklevel",
    "import torch\ntry: f()\nexcept RecursionError: pass": "RecursionError",
    "import torch\nexec('x')": "exec",
    "import torch\nopen('/proc/self/maps')": "/proc",
    "import torch, time\ntime.process_time()": "process_time",
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


def test_level(tmp_path: Path) -> None:
    """What does nothing before its import of torch may find imported what it uses."""
    for text, level in FORKED.items():
        reading = read_script(_write(tmp_path, text))
        assert (reading.level, reading.cold_because) == (level, ""), text


def test_cold(tmp_path: Path) -> None:
    """What does something before, or looks at imports, starts as ever, and it is said why."""
    for text, because in COLD.items():
        reading = read_script(_write(tmp_path, text))
        assert reading.level == "", text
        assert because in reading.cold_because


def test_no_script() -> None:
    """What cannot be read is started, too: the interpreter says what is wrong."""
    assert "cannot be read" in read_script(Path("/no/such/script.py")).cold_because


def test_bundled_scenarios() -> None:
    """Most scripts of the suite can be forked."""
    readings = [read_script(path) for path in sorted((ROOT / "scenarios").glob("*/*.py"))]
    assert sum(bool(reading.level) for reading in readings) > len(readings) / 2
