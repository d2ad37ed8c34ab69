"""A plugin for pytest that writes down which test runs, and how each test ended (PYTEST_DONT_REWRITE).

`sitecustomize.py` beside this file offers it to each pytest that is started with WHICHTORCH_TESTS=FOLDER, so this one
variable is enough. FOLDER/selection.json may say {"only": [ids] or null, "skip": [ids]}: other tests are deselected.
Where that file exists, a test file that cannot be imported does not keep the others from running.

FOLDER/tests.jsonl gets a JSON object per line, each with the `pid` that wrote it:

    begin        pytest has loaded this plugin
    over         the interpreter ends as it should; of a worker, it is ready
    exit         status, traceback: `os._exit` was called, and where
    internal     traceback: an error within pytest, or in a hook of the user's
    session      workers (of xdist, 0 without), root (of the ids, from where it was started), maxfail
    collected    ids: all that the user's command selects, in order, before `only` and `skip`
    uncollected  id, seconds, outcome, reason, traceback: a file that could not be imported, or that skips itself
    start        id, at
    end          id, outcome (pass, fail, skip, xfail, xpass), seconds, reason, traceback, stdout, stderr
    finish       code: the exit status of pytest

A `start` without `end` in a session with `finish`: the worker that ran the test died. A `begin` without `finish` and
`over`: something ended pytest. With xdist, each worker writes
what it runs, and the first worker writes what is collected. A pytest that a test starts writes nothing.

Runs in the environments under test: pytest 7 to 9, any Python that has torch wheels.
"""
# pytest may be started often, and pathlib is slower than os
# ruff: noqa: PTH118, PTH120, PTH123

from __future__ import annotations

import ast
import atexit
import contextlib
import importlib
import itertools
import json
import os
import time
import traceback
import unittest.case
from typing import TYPE_CHECKING, Any

import _pytest
import pluggy
import pytest

if TYPE_CHECKING:
    from typing import Generator, NoReturn

TESTS = "WHICHTORCH_TESTS"  # the folder
PLUGINS = "PYTEST_PLUGINS"
TEXT_KEPT = 1 << 16  # characters of a text's head, and of its tail
HEADER = "Traceback (most recent call last):"
OWN_FRAMES = (  # files and folders whose frames say nothing about a test
    os.path.dirname(_pytest.__file__) + os.sep,
    os.path.dirname(pluggy.__file__) + os.sep,
    unittest.case.__file__,
    importlib.__file__,
    ast.__file__,  # compiles each file of tests
    "<frozen importlib",
)
_TRACEBACK = "whichtorch_traceback"  # attribute of a report; a plugin that forks for each test hands it on
_PID = os.getpid()
_FILE = os.path.join(os.environ.get(TESTS, ""), "tests.jsonl")
_leave = os._exit


def write(event: str, **fields: Any) -> None:
    """Append a line at once. The file is opened each time: a test may close descriptors that are not its own."""
    if os.getpid() != _PID:  # a fork that runs on in pytest's code
        return
    line = json.dumps({"event": event, "pid": _PID, **fields}) + "\n"
    with contextlib.suppress(OSError), open(_FILE, "ab", buffering=0) as file:  # the tests go on without it
        file.write(line.encode())


def leave(status: int) -> NoReturn:
    """Do what `os._exit` does, and tell who called it."""
    with contextlib.suppress(Exception):
        stack = traceback.extract_stack()[:-1]
        below = [*itertools.dropwhile(lambda frame: not frame.filename.startswith(OWN_FRAMES), stack)] or stack
        frames = [frame for frame in below if not frame.filename.startswith(OWN_FRAMES)]
        write("exit", status=status, traceback=f"{HEADER}\n" + "".join(traceback.format_list(frames)))
    _leave(status)


if os.environ.get(TESTS):
    os._exit = leave
    write("begin")
    atexit.register(write, "over")


def pytest_configure(config: pytest.Config) -> None:
    """Record the session, if the tool asks for it."""
    if os.environ.get(TESTS):
        config.pluginmanager.register(SessionRecorder(config, os.environ[TESTS]))


class SessionRecorder:
    """What one process of pytest writes down: a session without xdist, its controller, or a worker."""

    def __init__(self, config: pytest.Config, folder: str) -> None:
        self.config = config
        worker: str | None = getattr(config, "workerinput", {}).get("workerid")
        self.is_worker, self.is_collecting = worker is not None, worker in {None, "gw0"}
        if self.is_worker:  # its controller tells how it ends
            write("over")
        self.now, self.clock = time.time, time.perf_counter  # a test may put others in their place
        self.reports: dict[str, tuple[Any, str]] = {}  # of the running test by phase, with tracebacks
        self.failed_subtests: list[tuple[str, str]] = []  # reason and traceback
        self.selection: dict[str, Any] = {}
        try:
            with open(os.path.join(folder, "selection.json"), encoding="utf-8") as file:
                self.selection = json.load(file)
        except FileNotFoundError:
            return
        config.option.continue_on_collection_errors = True

    def pytest_sessionstart(self) -> None:
        """Hide the plugin from what the tests start; a controller leaves it to its workers."""
        is_controller = self.config.pluginmanager.hasplugin("dsession")
        if not is_controller:
            os.environ.pop(TESTS, None)
            others = [name for name in os.environ.pop(PLUGINS, "").split(",") if name and name != __name__]
            if others:
                os.environ[PLUGINS] = ",".join(others)
        if not self.is_worker:
            specs = []
            if is_controller:
                specs = self.config.getoption("tx")  # "popen", or "2*popen"
                # it looks every 2 s whether a worker has told something: a wait with a deadline proves no hang
                queue = self.config.pluginmanager.getplugin("dsession").queue
                queue.get = lambda *_, **__: type(queue).get(queue)
            workers = sum(int(spec.partition("*")[0]) if "*" in spec else 1 for spec in specs)
            root = os.path.relpath(self.config.rootpath, self.config.invocation_params.dir)
            write("session", workers=workers, root=root, maxfail=self.config.getoption("maxfail") or 0)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, None]:
        """Note a file that cannot be imported or skips itself."""
        started = self.clock()
        ended = yield
        if ended.excinfo is not None:  # sys.exit, pytest.exit, or Ctrl-C
            write("uncollected", id=collector.nodeid, outcome="fail", traceback=cut(traceback_of(ended.excinfo[1])))
            return
        report = ended.get_result()
        if report.passed or not self.is_collecting:
            return
        excinfo = getattr(getattr(report, "call", None), "excinfo", None)
        error = excinfo.value if excinfo and report.failed else None
        if isinstance(error, pytest.Collector.CollectError):
            error = error.__cause__ or error
        write(
            "uncollected",
            id=report.nodeid,
            seconds=self.clock() - started,
            outcome="fail" if report.failed else "skip",
            reason="" if error else reason_of(report),
            traceback=cut(traceback_of(error)) if error else "",
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what the command selects, once all other plugins have deselected and sorted; leave what is to run."""
        if self.is_collecting and not self.config.pluginmanager.hasplugin("dsession"):
            write("collected", ids=[item.nodeid for item in session.items])
        only, skip = self.selection.get("only"), set(self.selection.get("skip") or ())
        asked = set(only or ())

        def is_wanted(item: pytest.Item) -> bool:
            is_asked = only is None or item.nodeid in asked or item.nodeid.partition("::")[0] in asked
            return is_asked and item.nodeid not in skip

        if left := [item for item in session.items if not is_wanted(item)]:
            session.items[:] = filter(is_wanted, session.items)
            self.config.hook.pytest_deselected(items=left)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Note the start and the end of a test, its reruns included."""
        self.reports, self.failed_subtests = {}, []
        started = self.clock()
        write("start", id=item.nodeid, at=self.now())
        ended = yield
        failures = self.failed_subtests + [
            ("" if text else reason_of(report), text) for report, text in self.reports.values() if report.failed
        ]
        if ended.excinfo is not None:  # pytest.exit, or Ctrl-C
            failures.append(("", traceback_of(ended.excinfo[1])))
        reports = [report for report, _ in self.reports.values()]
        telling = next((report for report in reports if report.skipped or hasattr(report, "wasxfail")), None)
        reason, text = failures[0] if failures else (reason_of(telling) if telling else "", "")
        if failures or telling is None:
            outcome = "fail" if failures else "pass"
        elif hasattr(telling, "wasxfail"):
            outcome = "xfail" if telling.skipped else "xpass"
        else:
            outcome = "skip"
        if reports or failures:
            write(
                "end",
                id=item.nodeid,
                outcome=outcome,
                seconds=self.clock() - started,
                reason=cut(reason),
                traceback=cut(text),
                stdout=cut(reports[-1].capstdout if reports else ""),
                stderr=cut(reports[-1].capstderr if reports else ""),
            )

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        """Keep the traceback with the report of a phase that fails; a setup begins the test anew, as a rerun does."""
        report = (yield).get_result()
        if call.when == "setup":
            self.reports, self.failed_subtests = {}, []
        if report.failed and call.excinfo is not None:
            vars(report)[_TRACEBACK] = traceback_of(call.excinfo.value)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the report of a phase or a subtest; it may come from a fork."""
        text = vars(report).pop(_TRACEBACK, "")
        if type(report).__name__.lower() != "subtestreport":
            self.reports[report.when or ""] = (report, text)
        elif report.failed:
            self.failed_subtests.append(("" if text else reason_of(report), text))

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note an error within pytest."""
        write("internal", traceback=cut(traceback_of(excinfo.value)))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, None]:
        """Note the exit status, once other plugins have had their say."""
        yield
        if not self.is_worker:
            write("finish", code=int(session.exitstatus))


def reason_of(report: Any) -> str:
    """Return why a test or a file was skipped, was expected to fail, or failed without an exception."""
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail).replace("reason: ", "", 1)
    if report.skipped:
        return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)[len("Skipped: ") :]
    return str(report.longreprtext)


def traceback_of(error: BaseException) -> str:
    """Return a standard traceback without the frames of pytest and pluggy."""
    try:
        formatted = traceback.TracebackException.from_exception(error)
        parts = [formatted]
        for part in parts:  # grows as it goes
            part.stack[:] = [frame for frame in part.stack if not frame.filename.startswith(OWN_FRAMES)]
            parts += filter(None, (part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())))
        text = "".join(formatted.format())
    except Exception:  # noqa: BLE001  # an exception that cannot be formatted
        text = type(error).__name__ + "\n"
    return text if HEADER in text else f"{HEADER}\n{text}"


def cut(text: str) -> str:
    """Return head and tail of a long text, in characters that every reader knows."""
    text = text.encode("utf-8", "replace").decode()
    left_out = len(text) - 2 * TEXT_KEPT
    return text if left_out <= 0 else f"{text[:TEXT_KEPT]}\n… {left_out} characters …\n{text[-TEXT_KEPT:]}"
