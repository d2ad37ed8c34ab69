"""What of a trace of torch is kept."""

from pathlib import Path

import pytest

from whichtorch.triage import casework as logs
from whichtorch.triage.casework import keep_trace

WRITTEN = {"trace/dedicated_log_torch_trace_x.log": "V1122 {}\n", "calls.jsonl": "{}\n"}


def test_the_trace_itself_is_kept(tmp_path: Path) -> None:
    """Tlparse can read it."""
    kept = keep_trace(WRITTEN, tmp_path / "logs")
    assert kept == {"logs/torch_trace.log": "TORCH_TRACE, as tlparse reads it"}
    assert (tmp_path / "logs" / "torch_trace.log").read_text() == "V1122 {}\n"


def test_what_is_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a trace cannot be read."""
    monkeypatch.setattr(logs, "MOST_BYTES", 3)
    assert keep_trace(WRITTEN, tmp_path / "logs") == {}
    assert not (tmp_path / "logs").exists()


def test_no_trace_is_no_artifact(tmp_path: Path) -> None:
    """An old torch writes none."""
    assert keep_trace({}, tmp_path / "logs") == {}
