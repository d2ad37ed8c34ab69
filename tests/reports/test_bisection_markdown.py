"""A bisection as Markdown, read back by a parser that is not ours."""

from __future__ import annotations

from pathlib import Path

from matrix.model import Attempt, Cell, Diagnosis, Outcome, StoppedBy
from reports.bisection_text import bisection_markdown
from tests.reports import reading
from tests.reports.test_bisection_text import bisection, boundary, probe
from tests.reports.test_markdown import HOSTILE

LINK = "https://github.com/pytorch/pytorch/compare/a...b"


def test_it_holds_all_that_an_issue_needs(tmp_path: Path) -> None:
    """What was searched, what each value showed, where it is stuck, its output, what changed, and the command."""
    (tmp_path / "err").write_text("Traceback\nValueError: as it was\n")
    attempt = Attempt(outcome=Outcome.HANG, seconds=1, stopped_by=StoppedBy.STALL, stderr="err")
    attempt = attempt.model_copy(update={"diagnosis": Diagnosis(summary="waits for the GIL", place="boxed kernel")})
    cell = Cell(environment="2.2.0", scenario="repro.py", outcome=Outcome.HANG, expected=True, seconds=1)
    bad = probe("2.2.0", "H").model_copy(update={"cell": cell.model_copy(update={"attempts": (attempt,)})})
    probes = (bad, probe("2.3.0", "p"))
    change = boundary("2.2.0", "2.3.0", commits=LINK, packages={"numpy": ("2.2.0", "2.3.0")})
    found = bisection("H......p", boundaries=(change,), probes=probes, command="x")
    text = "\n".join(bisection_markdown(found, tmp_path.joinpath))
    assert text.startswith("## `repro.py` hangs: fix between 2.2.0 and 2.3.0\n")
    first, second = reading.tables(text)
    assert [row[:3] for row in first] == [
        ["version", "outcome", "runs"],
        ["2.2.0", "HANG", "1 of 1"],
        ["2.3.0", "pass", "1 of 1"],
    ]
    assert second == [["package", "2.2.0", "2.3.0"], ["numpy", "2.2.0", "2.3.0"]]
    assert "Stage: boxed kernel" in text
    assert "```text\nTraceback\nValueError: as it was\n```" in text
    assert f"\nCommits: {LINK}\n" in text
    assert text.endswith("```text\nx\n```")


def test_no_text_breaks_it(tmp_path: Path) -> None:
    """A commit's subject, an exception's words or a script's name are shown, and nothing but shown."""
    hostile = probe("2.0.0", "H", title=HOSTILE, signature=HOSTILE, message=HOSTILE)
    probes = (hostile, probe("2.7.0", "u", message=HOSTILE))
    found = bisection(
        "H......p", boundaries=(boundary("2.0.0", "2.7.0"),), scenario=HOSTILE, probes=probes, reasons=(HOSTILE,)
    )
    text = "\n".join(bisection_markdown(found, tmp_path.joinpath))
    assert not {kind for kind in reading.kinds(text) if kind.startswith(("html", "link", "image", "em_", "s_", "hr"))}
    assert not [mark for mark in ("@", "#", "://", "<", "\x1b", "\x00") if mark in reading.bare(text)]
    (table,) = reading.tables(text)
    assert [len(row) for row in table] == [5, 5, 5]
