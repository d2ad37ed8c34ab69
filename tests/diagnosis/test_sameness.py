"""Which failures say only that a release does not have what a test uses."""

from __future__ import annotations

import pytest

from matrix.diagnosis.sameness import is_missing_api


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("AttributeError in <module> (repro.py)", "module 'torch' has no attribute 'compile'"),
        ("AttributeError in f (repro.py) < <module> (repro.py)", "'Tensor' object has no attribute 'untyped_storage'"),
        ("AttributeError in __getattr__ (__init__.py) < <module> (repro.py)", "module 'torch' has no attribute 'xpu'"),
        ("AttributeError in __getattr__ (_ops.py) < f (repro.py)", "'_OpNamespace' 'aten' object has no attribute 'x'"),
        ("ImportError in <module> (repro.py)", "cannot import name 'FakeTensorMode' from 'torch._subclasses'"),
        ("ModuleNotFoundError in <module> (repro.py)", "No module named 'torch._dynamo'"),
        ("TypeError in <module> (repro.py)", "compile() got an unexpected keyword argument 'dynamic'"),
        ("RuntimeError in check_if_dynamo_supported (eval_frame.py) < f (repro.py)", "Python 3.11+ not yet supported"),
    ],
)
def test_a_lack_is_told(signature: str, message: str) -> None:
    """A name, module, argument or platform that a release does not have is no failure of its own."""
    assert is_missing_api(signature, message)


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("AttributeError in forward (linear.py) < <module> (repro.py)", "module 'torch' has no attribute 'compile'"),
        ("AttributeError in <module> (repro.py)", "'NoneType' object has no attribute 'shape'"),
        ("RuntimeError in <module> (repro.py)", "module 'torch' has no attribute 'compile'"),
        ("TypeError in <module> (repro.py)", "mm() missing 1 required positional argument"),
        ("SIGSEGV", ""),
        (None, ""),
    ],
)
def test_a_failure_is_one(signature: str | None, message: str) -> None:
    """What goes wrong inside a library, or says something else, stays a failure."""
    assert not is_missing_api(signature, message)
