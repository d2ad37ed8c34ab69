"""How the path of a file of Python shows that it is of an installed package, of Python itself, or of no file at all."""

from __future__ import annotations

import re

LIBRARIES = re.compile(
    r"^<(?!string>|stdin>|ipython-input|doctest )"
    r"|(?:^|/)(?:site|dist)-packages/|(?:^|/)lib(?:64|32)?/(?:python|pypy)\d[\d.]*/"
    r"|(?:^|/)environments/inside/(?:startup/|fork_server\.py$)"
    # A torch that was built in place lies in a folder of its developer's.
    r"|(?:^|/)torch/(?:_[a-z]\w*|ao|autograd|backends|cuda|distributed|distributions|export|fx|futures|jit|library|linalg"
    r"|masked|mps|multiprocessing|nested|nn|onnx|optim|package|profiler|quantization|sparse|special|testing|utils|xpu)[/.]"
)
