"""What a statement is made of, and how source is parsed."""

import ast
import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import whichtorch
from whichtorch.source.syntax import parse_module

_SOURCE = "\n".join(f"x{line} = f(a[{line}] + (b * ({line} - c)))" for line in range(200))


class _Cycle:
    """Garbage whose collection runs Python code, so that another thread may run in the middle of a collection."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.fixture
def _frequent_thread_switches() -> Iterator[None]:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50, 2, 2)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


@pytest.mark.thorough
@pytest.mark.usefixtures("_frequent_thread_switches")
def test_threads_parse_without_disturbing_each_other() -> None:
    """Python 3.11 fails with SystemError where two threads parse at once; our parsing does not."""
    errors: list[Exception] = []

    def parse_often() -> None:
        try:
            for _ in range(15):
                _Cycle()
                parse_module(_SOURCE)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=parse_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_all_parsing_goes_through_the_lock() -> None:
    """Only `source/syntax.py` calls `ast.parse`; what runs inside an environment is a process of its own."""
    package = Path(whichtorch.__file__).parent
    callers = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if b"parse" in (text := file.read_bytes())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ast.parse"
    }
    assert {caller for caller in callers if not caller.startswith(("inside/", "scenarios/"))} == {"source/syntax.py"}
