"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.wheels import Index, serve
from whichtorch.model import Outcome, Record
from whichtorch.records.store import RunStore

# The commands under test are started a hundred times over: with bytecode each start takes 0.2 s less of a core.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A background shell starts the tests with SIGINT ignored, and nohup with SIGHUP ignored; the commands under test would
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# how long an example takes is the machine's mood, not the code's
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep plugins that are slow to load out of the pytests that tests start: 0.15 CPU seconds each."""
    # not in the process that starts the workers: they use these plugins themselves
    if hasattr(session.config, "workerinput") or not session.config.getoption("numprocesses", None):
        os.environ["PYTEST_ADDOPTS"] = "-p no:hypothesispytest -p no:anyio"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import Playwright, which is large, only where tests of the browser may run."""
    return True if collection_path.name == "browser" and "not browser" in config.option.markexpr else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage in what is collected, which stays, and less often later: that takes CPU seconds."""
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(50_000, 20)
    gc.enable()


@pytest.fixture
def index(wheels: Path) -> Iterator[Index]:
    """Serve the folder of wheels that a test, or the tests around it, call `wheels`."""
    with serve(wheels) as served:
        yield served


@pytest.fixture(autouse=True, scope="session")
def _idle_machine() -> Iterator[None]:
    """Keep the load of the machine that runs the tests out of the limits, where no other process sets them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whichtorch.matrix.cell_runner.load_slowdown", lambda: 1.0)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_record_contradicts_itself() -> Iterator[None]:
    """Look at every record that a test makes: what is diagnosed as a slow compile is not called a hang."""
    add = RunStore.add_record

    def checked(self: RunStore, record: Record) -> None:
        diagnosis = record.attempt.diagnosis
        assert not (diagnosis and diagnosis.kind == "slow compile" and record.attempt.outcome is Outcome.HANG), record
        add(self, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunStore, "add_record", checked)
        yield


@pytest.fixture(autouse=True)
def _no_test_leaks_signal_handlers() -> Iterator[None]:
    """Fail the test that changed a signal handler, not a later one that needs Ctrl-C."""
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
    before = [signal.getsignal(number) for number in watched]
    yield
    assert [signal.getsignal(number) for number in watched] == before
