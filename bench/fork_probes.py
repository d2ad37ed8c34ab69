"""Small scripts that look for differences between a forked and a freshly started Python.

`import torch` is put before those that lack it.
"""
# ruff: noqa: E501  a probe is a line

_COMPILED = "torch.compile(lambda x: x.sin() + 1, backend='eager')(torch.ones(3))"
# Each prints what it sees, or fails where what it sees is not what a started Python shows.
PROBES = {
    # the main module
    "main-module": "import __main__\nprint(__main__.__dict__ is globals(), __spec__, __package__, __doc__, __name__)",
    "main-in-modules": "import sys\nprint(sys.modules['__main__'].__spec__, sys.modules['__main__'].__file__ == __file__)",
    "main-names": "import os\nprint(sorted(globals()), os.path.basename(__file__), __loader__.name)",
    "main-pickle": "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A)) is A, A.__module__)",
    "main-source": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f), inspect.getmodule(f).__name__)",
    "main-stack": "import inspect\nprint(len(inspect.stack()))",
    "main-traceback": "import traceback\ntraceback.print_stack()",
    "main-depth": "import sys\nprint(sys._getframe().f_back)",
    "main-recursion": "def f(n):\n    return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError as error:\n    print(error)",
    "main-exec": "exec('import gc; print(gc.get_freeze_count())')",
    # the interpreter
    "sys-argv": "import sys\nprint(len(sys.argv), sys.orig_argv[1:] == sys.argv, sys.flags, sys.warnoptions)",
    "sys-modules": "import sys\nprint(len(sys.modules))",
    "sys-all": "import sys\nprint(sorted(vars(sys)))",
    "sys-xoptions": "import sys\nprint(sys._xoptions)",
    "sys-path": "import os, sys\nprint(sys.path[0] == os.path.dirname(os.path.realpath(__file__)), len(sys.path))",
    "sys-trace": "import sys\nprint(sys.gettrace(), sys.getprofile())\nsys.settrace(lambda *_: None)",
    "refcount": "import sys\nprint(sys.getrefcount(torch))",
    "gc": "import gc\nprint(gc.get_freeze_count(), gc.isenabled(), gc.get_threshold())",
    "meta-path": "import sys\nprint(sys.meta_path)",
    "find-spec": "import importlib.util\nprint(importlib.util.find_spec('torch._dynamo') is not None)",
    "lazy-attribute": "print(hasattr(torch, 'nothing'), [n for n in ('_dynamo', '_inductor', 'sympy') if n in vars(torch)])",
    "dynamo-unimported": "print(torch._dynamo.config.suppress_errors)",
    "experimental-unimported": "print(torch.fx.experimental.symbolic_shapes.ShapeEnv)\ntorch.optim",
    "backends-unimported": "import torch._dynamo\nprint(torch._dynamo.backends.debugging.eager.__name__)",
    "submodule": "import torch._inductor.config\nprint(hasattr(torch._inductor, 'graph'), hasattr(torch._inductor, 'lowering'))",
    "other-operators": "print(torch.ops.prims.add)\ntorch.optim",
    "sum-of-imports": "import concurrent\nprint(hasattr(concurrent.futures, 'process'))\ntorch.optim",
    # the process
    "threads": "import os, threading\nprint(threading.active_count(), len(os.listdir('/proc/self/task')))",
    "thread-names": "import threading\nprint([t.name for t in threading.enumerate()], threading.main_thread().is_alive())",
    "descriptors": "import os\nprint([n for n in range(3, 64) if os.path.exists(f'/dev/fd/{n}')], os.isatty(0), os.isatty(1))",
    "status": "print(open('/proc/self/status').read().count('VmSize'), open('/proc/self/cmdline').read().count('fork'))",
    "rlimits": "import resource\nprint([resource.getrlimit(n) for n in range(10)])",
    "signals": "import signal\nprint([str(signal.getsignal(n)) for n in range(1, 58) if n not in (9, 19)])",
    "signal-mask": "import signal\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, ()))\nsignal.raise_signal(signal.SIGUSR1)",
    "umask": "import os\nprint(os.umask(0o22), os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid())",
    "priority": "import os\nprint(os.nice(0), os.sched_getscheduler(0), len(os.sched_getaffinity(0)), os.cpu_count())",
    "folder": "import os, tempfile\nprint(os.getcwd() == os.path.realpath('.'), tempfile.gettempdir() == os.environ['TMPDIR'])",
    "environ": "import os\nprint(sorted(n for n in os.environ if n not in ('WHICHTORCH_ATTEMPT', 'WHICHTORCH_STACKS')))",
    "cpu-time": "import time\nassert time.process_time() > 0.2",
    "wall-time": "import time\nbegin = time.monotonic()\nimport torch._dynamo\nassert time.monotonic() - begin > 0.05",
    # what acts on imports
    "environ-before": "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch\nprint(torch.get_num_threads())",
    "environ-after": "import os\nos.environ['TORCH_LOGS'] = 'graph_breaks'\nimport torch._dynamo\nprint(torch._dynamo.config.verbose)",
    "warnings": "import warnings\nwarnings.simplefilter('error')\nimport torch._inductor.compile_fx\nprint('none')",
    "warning-once": "import warnings\nfor _ in range(2):\n    warnings.warn('mine')\nprint(__warningregistry__ is not None)",
    "warned": "import warnings\nwith warnings.catch_warnings(record=True) as seen:\n    import torch._dynamo\nprint(len(seen))",
    "meta-device": "with torch.device('meta'):\n    import torch._dynamo.backends.common\nprint(1)",
    "patched": "torch.nn.Module.mine = 1\ntorch.add = None\nimport torch._dynamo\nprint(torch.nn.Module.mine)",
    "default-dtype": "torch.set_default_dtype(torch.float64)\nprint(" + _COMPILED + ".dtype)",
    "no-grad": "with torch.no_grad():\n    print(" + _COMPILED + ")",
    "fake-mode": "from torch._subclasses.fake_tensor import FakeTensorMode\nwith FakeTensorMode():\n"
    "    print(torch.ones(2) + torch.ones(2))",
    "own-seed": "import numpy\nimport torch\nprint(torch.rand(3), torch.initial_seed(), torch.get_num_threads())",
    "seeded": "import random\nrandom.seed(3)\ntorch.manual_seed(3)\nprint(random.random(), torch.rand(2), hash(3))",
    "manual-seed": "print(torch.manual_seed.__module__, torch.manual_seed.__name__)\ntorch.optim",
    # other processes and the end
    "start-method": "import multiprocessing\nprint(multiprocessing.get_start_method(True), multiprocessing.parent_process())",
    "fork-child": "import os\ntorch.ones(400, 400) @ torch.ones(400, 400)\nif not os.fork():\n"
    "    print('child', flush=True)\n    os._exit(0)\nprint(os.wait()[1])",
    "loader": "from torch.utils.data import DataLoader\nif __name__ == '__main__':\n"
    "    print([int(b.sum()) for b in DataLoader(list(range(8)), 4, num_workers=1)])",
    "spawned": "import torch.multiprocessing as mp\ndef f(n):\n    print('rank', n, flush=True)\n"
    "if __name__ == '__main__':\n    mp.spawn(f, nprocs=1)",
    "at-fork": "import os\nos.register_at_fork(before=lambda: print('before', flush=True))\nif not os.fork():\n    os._exit(0)\nos.wait()",
    "at-exit": "import atexit\natexit.register(print, 'last')\nimport torch._dynamo\natexit.register(print, 'first')",
    "no-newline": "import sys\nsys.stdout.write('out')\nsys.stderr.write('err')",
    "logging": "import logging\nlogging.basicConfig(level='INFO')\nlogging.info('x')\nprint(logging.getLogger().handlers)",
    "locale": "import locale\nprint(locale.setlocale(locale.LC_ALL), locale.getpreferredencoding())",
    "threads-set": "torch.set_num_threads(1)\ntorch.set_num_interop_threads(1)\nprint(torch.get_num_threads(), "
    "torch.get_num_interop_threads())",
    "cuda": "print(torch.cuda.is_available(), torch.cuda.is_initialized())\ntry:\n    torch.ones(1, device='cuda')\n"
    "except Exception as error:\n    print(type(error).__name__, str(error)[:40])",
    "cuda-compiled": _COMPILED + "\nprint(torch.cuda._is_in_bad_fork())\ntry:\n    torch.cuda.init()\n"
    "except Exception as error:\n    print(type(error).__name__, str(error)[:40])",
    "inductor": "print(torch.compile(lambda x: x.sin() + 1)(torch.ones(3)))",
    "exported": "print(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)).graph)",
    "backward": "x = torch.ones(3, requires_grad=True)\n(x * 2).sum().backward()\nprint(x.grad)",
}
