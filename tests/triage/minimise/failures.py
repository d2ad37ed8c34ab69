"""Oracles that run a candidate in this process: for scripts that end by themselves."""

import contextlib
import io
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any
from unittest import mock

SCRIPT = "script.py"


def failure(source: str) -> str:
    """Run a source and return how it failed, "" where it did not."""
    names: dict[str, object] = {"__name__": "__main__"}
    without_arguments = mock.patch.object(sys, "argv", [SCRIPT])  # pytest's own are none of a script's
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()), without_arguments:
        try:
            exec(compile(source, SCRIPT, "exec"), names)  # noqa: S102 - that is what an oracle does
        except Exception as error:  # noqa: BLE001 - whatever it is
            return f"{type(error).__name__}: {error}"
        finally:
            names.clear()
    return ""


def same_failure(source: str) -> Callable[[str], bool]:
    """Return an oracle that says yes to what fails as a source does."""
    expected = failure(source)
    assert expected
    return lambda candidate: failure(candidate) == expected


def traced(source: str) -> tuple[set[int], tuple[int, ...]]:
    """Return the lines of a source that run, and those that it was in when it failed."""
    lines: set[int] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename == SCRIPT and event == "line":
            lines.add(frame.f_lineno)
        return trace

    failing = []
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(source, SCRIPT, "exec"), {"__name__": "__main__"})  # noqa: S102
    except Exception as error:  # noqa: BLE001
        place = error.__traceback__
        while place is not None:
            if place.tb_frame.f_code.co_filename == SCRIPT:
                failing.append(place.tb_lineno)
            place = place.tb_next
    finally:
        sys.settrace(before)
    return lines, tuple(failing)
