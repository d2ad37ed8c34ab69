"""Watch a session of pytest: end a test that hangs, or the session where that cannot be done."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from whichtorch.matrix.inspect.pytest_plugin import HANG_SIGNAL, SENTENCE
from whichtorch.matrix.inspect.watch_request import OnHang, WatchRequest
from whichtorch.matrix.inspect.watched_command import CommandWatch, Standstill
from whichtorch.matrix.process import kernel

if TYPE_CHECKING:
    import pytest
    from _pytest.reports import TestReport

FAILED_CODE = 1  # pytest's exit status where a test has failed
ATTEMPTS = 8  # to have a test take the exception; after the first, the stuck processes that it started are killed
PAUSE = 1.0  # seconds between them
STEP = 0.05  # seconds between two looks whether it has ended
UNABLE = "pytest cannot go on: an exception did not end the test; it may wait in native code"


def fork_watched(config: pytest.Config) -> None:
    """Return in a child of this process, which is to run the tests. This process watches it, and ends as it does."""
    folder = os.environ["WHICHTORCH_TESTS"] = tempfile.mkdtemp(prefix="whichtorch-tests-")
    sys.stdout.flush()
    sys.stderr.flush()
    if child := os.fork():
        code = FAILED_CODE
        try:
            code = SessionWatch(config, folder, child).end()
        except BaseException:  # noqa: BLE001 - the tests go on without a watch
            traceback.print_exc()
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            sys.stderr.flush()
            os._exit(code)


class SessionWatch(CommandWatch):
    """The watch of a session in a forked child."""

    def __init__(self, config: pytest.Config, folder: str, child: int) -> None:
        super().__init__(WatchRequest(command=(), on_hang=OnHang.STOP), folder)
        self._config, self._child = config, child

    def _start(self) -> None:
        self._leader = self._child

    def end(self) -> int:
        """Watch the session to its end; return its exit status, also where it hangs afterwards."""
        end = self.watch(self._end_test)
        finished = [event["code"] for event in self._events() if event["event"] == "finish"]
        return end.exit_code if end.code is not None else finished[-1] if finished else FAILED_CODE

    def _events(self) -> list[dict[str, Any]]:
        from whichtorch.matrix.inspect.watched_run import test_events

        return test_events(Path(self._folder))

    def _end_test(self, seen: Standstill) -> bool:
        """Have the tests fail that hang; return whether the session goes on."""
        from whichtorch.matrix.inspect.watched_run import read_hang, running_tests

        folder = Path(self._folder)
        hang, lines = read_hang(seen, folder)
        tests = {pid: test for pid, test in running_tests(folder, seen.pids).items() if test}
        (folder / SENTENCE).write_text(f"HANG {hang.sentence}", encoding="utf-8")
        for attempt in range(ATTEMPTS if tests else 0):
            for pid in filter(lambda pid: kernel.catches(pid, HANG_SIGNAL), tests):
                kernel.send(pid, HANG_SIGNAL)  # the main thread takes it, unless somebody has just stopped that thread
            has_ended = self._end_within(PAUSE, tests)
            if not attempt:
                self._kill_started(tests, seen.pids)
            if has_ended:
                return True
        print(f"\nwhichtorch: {hang.headline}", *lines, *([UNABLE] if tests else []), sep="\n", file=sys.stderr)
        for test in tests.values():
            print(f"FAILED {test} - HANG {hang.sentence}", file=sys.stderr)
        self._write_junit(tests, hang.sentence)
        return False

    def _end_within(self, seconds: float, tests: dict[int, str]) -> bool:
        """Wait for tests to end."""
        from whichtorch.matrix.inspect.watched_run import running_tests

        end = time.monotonic() + seconds
        while still := tests.items() & running_tests(Path(self._folder), tests).items():
            if time.monotonic() > end:
                break
            time.sleep(STEP)
        return not still

    def _kill_started(self, tests: dict[int, str], pids: tuple[int, ...]) -> None:
        """Kill what the tests have started: like them it can never go on, and a fixture would wait for it again."""
        events = self._events()
        begun = min(event["at"] for event in events if "at" in event and tests.get(event["pid"]) == event["id"])
        age, now = time.time() - begun, time.clock_gettime(time.CLOCK_BOOTTIME)
        for pid in set(pids) - {event["pid"] for event in events}:
            process = kernel.process(pid)
            if process and now - process.started / kernel.TICK <= age:
                kernel.send(pid, signal.SIGKILL)

    def _write_junit(self, tests: dict[int, str], sentence: str) -> None:
        """Have pytest's own code write the JUnit file, if one was asked for: the session cannot do it any more."""
        from _pytest import junitxml

        junitxml.pytest_configure(self._config)
        xml = self._config.stash.get(junitxml.xml_key, None)
        if xml is None:
            return
        xml.pytest_sessionstart()
        hung = [{"id": test, "outcome": "fail", "reason": f"HANG {sentence}"} for test in tests.values()]
        for event in [event for event in self._events() if event["event"] == "end"] + hung:
            xml.pytest_runtest_logreport(_report(event, "call"))
            xml.pytest_runtest_logreport(_report(event, "teardown"))
        xml.pytest_sessionfinish()


def _report(event: dict[str, Any], phase: Literal["call", "teardown"]) -> TestReport:
    """Return what pytest would tell of a phase of a test that has ended so."""
    from _pytest.reports import TestReport

    told = event.get("traceback") or event["reason"]
    outcome: Literal["passed", "failed", "skipped"] = "passed"
    if phase == "call" and event["outcome"] not in {"pass", "xpass"}:
        outcome = "failed" if event["outcome"] == "fail" else "skipped"
    place = (event["id"].partition("::")[0], 0)
    return TestReport(
        nodeid=event["id"],
        location=(*place, event["id"]),
        keywords={},
        outcome=outcome,
        longrepr=(*place, f"Skipped: {told}") if outcome == "skipped" else told,
        when=phase,
        duration=event.get("seconds", 0) if phase == "call" else 0,
    )
