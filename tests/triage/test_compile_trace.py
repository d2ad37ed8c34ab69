"""What of a trace is kept, with a stand-in for tlparse and without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from whichtorch.matrix.triage import compile_trace
from whichtorch.matrix.triage.compile_trace import keep_trace

PYTHON = sys.executable
TOOL = """#!{python}
import pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1]) / "-_0_0_0"
out.mkdir(parents=True)
for name in ("dynamo_output_graph_1", "inductor_output_code_cabc_13", "metrics_17", "aot_inference_graph_6"):
    (out / (name + ".txt")).write_text(name)
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the texts that a run wrote, a trace among them; no tool is beside this Python or on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none" / "python"))
    return {"trace/dedicated_log_torch_trace_x.log": "V1122 {}\n", "calls.jsonl": "{}\n"}


def install(folder: Path, source: str, python: str) -> None:
    """Put a tool called tlparse into a folder."""
    folder.mkdir()
    (folder / "tlparse").write_text(source.format(python=python))
    (folder / "tlparse").chmod(0o755)


def test_without_a_tool_the_trace_itself_is_kept(written: dict[str, str], tmp_path: Path) -> None:
    """Somebody else can read it."""
    kept = keep_trace(written, tmp_path / "logs")
    assert kept == {"logs/torch_trace.log": "TORCH_TRACE, as tlparse reads it"}
    assert (tmp_path / "logs" / "torch_trace.log").read_text() == "V1122 {}\n"


def test_graphs_and_code_are_kept_in_their_order(written: dict[str, str], tmp_path: Path) -> None:
    """What is no graph and no code stays out."""
    install(tmp_path / "bin", TOOL, PYTHON)
    kept = keep_trace(written, tmp_path / "logs")
    assert list(kept)[1:] == [
        "logs/01_dynamo_output_graph_0_0_0.txt",
        "logs/06_aot_inference_graph_0_0_0.txt",
        "logs/13_inductor_output_code_0_0_0.txt",
    ]
    assert all((tmp_path / path).exists() for path in kept)


def test_a_tool_that_fails_costs_nothing_but_the_parts(written: dict[str, str], tmp_path: Path) -> None:
    """The trace is kept all the same."""
    install(tmp_path / "bin", "#!/bin/false\n", "")
    assert list(keep_trace(written, tmp_path / "logs")) == ["logs/torch_trace.log"]


def test_what_is_too_long_is_left_out(written: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a trace cannot be read."""
    monkeypatch.setattr(compile_trace, "MOST_BYTES", 3)
    assert keep_trace(written, tmp_path / "logs") == {}
    assert not (tmp_path / "logs").exists()


def test_no_trace_is_no_artifact(tmp_path: Path) -> None:
    """An old torch writes none."""
    assert keep_trace({}, tmp_path / "logs") == {}
