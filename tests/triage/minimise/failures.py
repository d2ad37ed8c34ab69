"""Oracles that run a candidate in this process: for scripts that end by themselves."""

import contextlib
import io
import sys
import traceback
import warnings
from collections.abc import Callable
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


def traced(source: str) -> tuple[int, ...]:
    """Return the lines of a source that it was in when it failed, the innermost last."""
    failing: list[int] = []
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(source, SCRIPT, "exec"), {"__name__": "__main__"})  # noqa: S102
    except Exception as error:  # noqa: BLE001
        frames = traceback.extract_tb(error.__traceback__)
        failing += [frame.lineno or 0 for frame in frames if frame.filename == SCRIPT]
    return tuple(failing)
