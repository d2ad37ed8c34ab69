"""Watch a session of pytest: end a test that hangs, or the session where that cannot be done."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree as ET

from whichtorch.matrix.test_session import TestEvent, test_events
from whichtorch.process import kernel
from whichtorch.watch import HANG_SIGNAL, ORDER
from whichtorch.watch.watch_request import OnHang, WatchRequest
from whichtorch.watch.watched_command import SIGNAL_CODE, CommandWatch, Standstill
from whichtorch.watch.watched_run import read_hang, running_tests

FAILED_CODE = 1  # pytest's exit status where a test has failed
ATTEMPTS = 8  # to have a test take the exception; after the first, the stuck processes that it started are killed
PAUSE = 1.0  # seconds between them
STEP = 0.05  # seconds between two looks whether it has ended
UNABLE = "pytest cannot go on: an exception did not end the test; it may wait in native code"

_ELEMENTS = {"fail": "failure", "skip": "skipped", "xfail": "skipped"}  # of JUnit, by the plugin's outcomes
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def end_like(child: int, folder: str, junit: str | None) -> NoReturn:
    """Watch a forked child that runs the tests, and end this process as it ends."""
    code = FAILED_CODE
    try:
        code = SessionWatch(child, folder, junit).end()
    except BaseException:  # noqa: BLE001 - the tests go on without a watch
        traceback.print_exc()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        code = status if status >= 0 else SIGNAL_CODE - status
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.flush()
        os._exit(code)


class SessionWatch(CommandWatch):
    """The watch of a session, whose processes write to `folder`."""

    def __init__(self, child: int, folder: str, junit: str | None) -> None:
        super().__init__(WatchRequest(command=(), on_hang=OnHang.STOP), folder)
        self._child, self._path, self._junit, self._spared = child, Path(folder), junit, ATTEMPTS

    def _start(self) -> None:
        self._leader = self._child

    def end(self) -> int:
        """Watch the session to its end; return its exit status, also where it hangs afterwards."""
        end = self.watch(self._end_test)
        finished = [event.code for event in test_events(self._path) if event.code is not None]
        return end.exit_code if end.code is not None else finished[-1] if finished else FAILED_CODE

    def _end_test(self, seen: Standstill) -> bool:
        """Have the tests fail that hang; return whether the session goes on."""
        hang, lines = read_hang(seen, self._path)
        if hang is None:
            return True
        if hang.is_likely:
            print(f"\nwhichtorch: {hang.headline}", file=sys.stderr)
            return True
        tests = {pid: test for pid, test in running_tests(self._path, seen.pids).items() if test}
        orders = {pid: self._path / ORDER.format(pid=pid) for pid in tests if kernel.catches(pid, HANG_SIGNAL)}
        for order in orders.values():
            order.write_text(f"HANG {hang.sentence}", encoding="utf-8")
        for attempt in range(ATTEMPTS if tests else 0):
            for pid, order in orders.items():
                if order.exists():  # another thread took the signal: the main thread was stopped just then
                    kernel.send(pid, HANG_SIGNAL)
            has_ended = self._end_within(PAUSE, tests)
            if not attempt:
                self._kill_started(tests, seen.pids)
            if has_ended:
                return True
        self._spared -= 1
        if orders and self._spared and not any(order.exists() for order in orders.values()):
            return True  # it took the exception, and is on its way out or hangs again
        failed = [f"FAILED {test} - HANG {hang.sentence}" for test in tests.values()]
        shown = [f"\nwhichtorch: {hang.headline}", *lines, *([UNABLE] if tests else []), *failed]
        print(*shown, sep="\n", file=sys.stderr)
        if self._junit:
            try:
                self._write_junit(Path(self._junit), tests, f"HANG {hang.sentence}")
            except OSError as error:  # the session must end all the same
                print(f"whichtorch: cannot write {self._junit}: {error.strerror}", file=sys.stderr)
        return False

    def _end_within(self, seconds: float, tests: dict[int, str]) -> bool:
        """Wait for tests to end."""
        end = time.monotonic() + seconds
        while still := tests.items() & running_tests(self._path, tests).items():
            if time.monotonic() > end:
                break
            time.sleep(STEP)
        return not still

    def _kill_started(self, tests: dict[int, str], pids: tuple[int, ...]) -> None:
        """Kill what the tests have started: like them it can never go on, and a fixture would wait for it again."""
        events = list(test_events(self._path))
        begun = min(event.at for event in events if event.event == "start" and tests.get(event.pid) == event.id)
        age, now = time.time() - begun, time.clock_gettime(time.CLOCK_BOOTTIME)
        for pid in set(pids) - {event.pid for event in events}:
            process = kernel.process(pid)
            if process and now - (process.started + 1) / kernel.TICK <= age:  # it started within that tick
                kernel.send(pid, signal.SIGKILL)

    def _write_junit(self, file: Path, tests: dict[int, str], sentence: str) -> None:
        """Write the JUnit file that pytest was asked for, since pytest cannot do it any more."""
        root = ET.Element("testsuites")
        suite = ET.SubElement(root, "testsuite", name="pytest")
        hung = [TestEvent(event="end", id=test, outcome="fail", traceback=sentence) for test in tests.values()]
        for event in [event for event in (*test_events(self._path), *hung) if event.event == "end"]:
            path, _, name = event.id.partition("::")
            case = ET.SubElement(suite, "testcase", name=name, classname=path.removesuffix(".py").replace("/", "."))
            case.set("time", f"{event.seconds:.3f}")
            if event.outcome in _ELEMENTS:
                told = _NOT_XML.sub("?", event.traceback or event.reason)
                ET.SubElement(case, _ELEMENTS[event.outcome], message=told).text = told
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
        file = Path(os.path.expandvars(file.expanduser()))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(ET.tostring(root))
