"""`pytest --whichtorch`: a test that hangs fails with a sentence that says where, and the other tests go on.

pytest loads this module wherever whichtorch is installed, so it imports nothing until the option is given. Then pytest
forks before the session. The child runs the tests. The parent watches it as `whichtorch run` watches a command: a
thread of a process that hangs might never run.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from whichtorch.watch import HANG_SIGNAL, ORDER

if TYPE_CHECKING:
    from types import FrameType

    from _pytest.config.argparsing import Parser


def pytest_addoption(parser: Parser) -> None:
    """Add the option."""
    parser.getgroup("whichtorch").addoption(
        "--whichtorch", action="store_true", help="Fail a test that hangs, say where, and go on."
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start the watch, unless this process is watched already: by `whichtorch run`, or because a test runs pytest."""
    if not config.getoption("whichtorch"):
        return
    if sys.platform != "linux":
        raise pytest.UsageError("--whichtorch: processes can only be watched on Linux")
    if signal.getsignal(HANG_SIGNAL) is not signal.SIG_DFL:
        return
    is_worker = hasattr(config, "workerinput")
    if is_worker != ("WHICHTORCH_TESTS" in os.environ):
        return
    if not is_worker:
        from whichtorch.process.marks import new_temporary_folder

        os.environ["WHICHTORCH_TESTS"] = str(new_temporary_folder())
        sys.stdout.flush()
        sys.stderr.flush()
        if child := os.fork():
            from whichtorch.watch.watched_tests import end_like

            end_like(child, os.environ["WHICHTORCH_TESTS"], config.getoption("xmlpath", None))
    from whichtorch.inside.startup import FOLDER, sitecustomize, whichtorch_tests

    folder = os.environ["WHICHTORCH_TESTS"]
    sitecustomize.register_stacks(folder)
    sitecustomize.register_loop(str(FOLDER), folder)

    def fail(_number: int, _frame: FrameType | None) -> None:
        __tracebackhide__ = True
        order = os.path.join(folder, ORDER.format(pid=os.getpid()))  # noqa: PTH118
        if os.path.exists(order):  # noqa: PTH110
            with open(order, encoding="utf-8") as file:  # noqa: PTH123
                sentence = file.read()
            os.unlink(order)  # noqa: PTH108
            # What the test has started will be killed, for which the handler of torch's loaders raises: in pytest.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            pytest.fail(sentence)

    signal.signal(HANG_SIGNAL, fail)
    config.pluginmanager.register(whichtorch_tests.SessionRecorder(config, folder))
