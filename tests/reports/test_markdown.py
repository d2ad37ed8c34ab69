"""The Markdown of a run, read back by a parser that is not ours, and what is left out where it is too long."""

from pathlib import Path

import pytest

from tests.reports import reading
from tests.reports.test_table import COMMAND, MIXED, NEW, OLD, cell, environment, result, stored
from whichtorch.model import UNOBSERVED, Attempt, Cell, Outcome, Result, Run, StoppedBy
from whichtorch.records.compare.comparison import compare
from whichtorch.records.store import StoredRun
from whichtorch.reports.document import COLUMNS, size_of
from whichtorch.reports.markdown import LIMIT, ROWS, markdown_lines

ISSUE = 65_000  # bytes: GitHub refuses an issue or a comment of more than 65,536 characters


def text_of(report: Result) -> str:
    return "\n".join(markdown_lines(stored(report), COMMAND))


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("## ")]


def test_it_stands_alone() -> None:
    """Counts, what nobody expects with log and rerun command, the table, what is known, and exact environments."""
    text = text_of(MIXED)
    assert headings(text) == ["## Not expected", "## Table", "## Known failures", "## Environments"]
    assert "4 cells, 1 not as expected; 1 unexpected hang." in text
    assert (
        "- **HANG~!** (different) `family/case[op=mm]` `torch-2.12.1-pypi`: stuck: child, futex; "
        "log `/state/runs/r/attempts/1/stderr.txt`; "
        "rerun: `whichtorch matrix 'family/case[op=mm]' --torch 2.12.1 --build pypi --fresh`"
    ) in text
    assert list(reading.tables(text)) == [
        [["scenario", "2.11.0", "2.12.1"], ["family/case[op=mm]", "FAIL", "HANG~!"], ["family/other", "pass", "pass"]]
    ]
    failed = "`family/case[op=mm]` `torch-2.11.0-pypi`: RuntimeError in merge_devices (fake_tensor.py)"
    assert f"- **FAIL** (expected) {failed}" in text
    assert "`2.12.1/default`" in text


def test_what_changed_comes_first() -> None:
    """With a comparison it begins with what is worse now; what stays as it was is only counted."""
    before = result([OLD], [cell(OLD, Outcome.PASS), cell(OLD, Outcome.FAIL, scenario="family/b")])
    now = [cell(OLD, Outcome.HANG, expected=False, signature="stuck"), cell(OLD, Outcome.PASS, scenario="family/b")]
    after = result([OLD], [*now, cell(OLD, Outcome.PASS, scenario="family/new")])
    text = "\n".join(markdown_lines(stored(after), COMMAND, compare(before, after)))
    assert headings(text)[:2] == ["## Changed since run r", "## Not expected"]
    counts = [line.split()[:2] for line in reading.blocks(text)[0]]
    assert counts == [["1", "regression"], ["1", "fixed"], ["1", "appeared"]]
    assert [line for line in text.splitlines() if " -> " in line or "appeared  torch" in line] == [
        "- **regression** pass -> HANG! `family/case[op=mm]` `torch-2.11.0-pypi`: stuck",
        "- **fixed** FAIL -> pass `family/b[op=mm]` `torch-2.11.0-pypi`",
    ]
    assert "- appeared torch-2.11.0-pypi: `family/new[op=mm]` (pass)" in text


def test_a_changed_environment_names_packages_and_commits() -> None:
    """What is another build of a label is told with what changed in it."""
    old = environment("2.11.0", packages={"numpy": "2.2.0"}, fingerprint={"git_version": "a" * 40})
    new = environment("2.11.0", id="new", packages={"numpy": "2.3.0"}, fingerprint={"git_version": "b" * 40})
    before, after = result([old], [cell(old, Outcome.PASS)]), result([new], [cell(new, Outcome.PASS)])
    text = "\n".join(markdown_lines(stored(after), COMMAND, compare(before, after)))
    assert "- torch-2.11.0-pypi: numpy 2.2.0 -> 2.3.0; commits <https://github.com/pytorch/pytorch/compare/" in text


def test_what_is_no_evidence_is_told_once() -> None:
    """An environment that cannot be had is one line; a doubted pass has its reason."""
    gone = environment("9.9.9", outcome=Outcome.UNBUILDABLE, reason="no wheel")
    cells = [cell(gone, Outcome.UNBUILDABLE, attempts=(), expected=False), cell(OLD, Outcome.PASS, reason=UNOBSERVED)]
    text = text_of(result([gone, OLD], cells))
    assert "## Not expected\n\n- **unbuildable** `torch-9.9.9-pypi`: no wheel\n" in text
    assert (
        f"## Doubted passes\n\n- **pass** (expected) `family/case[op=mm]` `torch-2.11.0-pypi`: {UNOBSERVED}\n" in text
    )


def test_failures_are_shown_with_the_ends_of_what_they_wrote(tmp_path: Path) -> None:
    """One excerpt for each way of failing, in a block."""
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    (folder / "err").write_text("Traceback\n```\n@torvalds\n")
    attempt = Attempt(outcome=Outcome.FAIL, seconds=1, stopped_by=StoppedBy.EXIT, stderr="runs/r/err")
    cells = [cell(where, Outcome.FAIL, expected=False, signature="E in f", attempts=(attempt,)) for where in (OLD, NEW)]
    text = "\n".join(markdown_lines(StoredRun(folder=folder, result=result([OLD, NEW], cells)), COMMAND))
    assert text.count("Traceback") == 1
    assert "````text\nTraceback\n```\n@torvalds\n````" in text


def test_a_wide_run_continues_in_tables_below() -> None:
    """Sixty nightlies are tables of ten columns."""
    nights = [environment(f"2.16.0.dev{day:02d}") for day in range(60)]
    found = list(reading.tables(text_of(result(nights, [cell(where, Outcome.FAIL) for where in nights]))))
    assert [len(table[0]) for table in found] == [COLUMNS + 1] * 6


def test_a_long_table_is_without_what_only_passes() -> None:
    """Nobody finds a red row among hundreds of passes: these are counted; a short table has them all."""
    cells = [cell(OLD, Outcome.PASS, scenario=f"family/{n}") for n in range(ROWS)]
    (table,) = reading.tables(text_of(result([OLD], cells)))
    assert len(table) == 1 + ROWS
    gone = environment("9.9.9", outcome=Outcome.BROKEN, reason="canary")
    cells += [cell(gone, Outcome.BROKEN, scenario=f"family/{n}", attempts=()) for n in range(ROWS)]
    text = text_of(result([OLD, gone], [*cells, cell(OLD, Outcome.FAIL)]))
    (table,) = reading.tables(text)
    assert [row[0] for row in table] == ["scenario", "family/case[op=mm]"]
    assert f"Not shown, for there are many: {ROWS} rows of passes and skips." in text


def huge() -> Result:
    """Return 10,000 cells, half of them failures with long messages that nobody expects, a hang now and then."""
    environments = [environment(f"2.{minor}.0") for minor in range(10)]
    cells = []
    for number in range(1000):
        for place, where in enumerate(environments):
            name = f"family/a_case_with_a_rather_long_name_{number}"
            if (number + place) % 500 == 499:
                cells.append(
                    cell(where, Outcome.HANG, expected=False, scenario=name, signature=f"stuck in hang_{number}")
                )
            elif number % 2:
                words = f"é{'long ' * 300}{number} {place}"
                cells.append(cell(where, Outcome.FAIL, expected=place % 2 == 0, scenario=name, signature=words))
            else:
                cells.append(cell(where, Outcome.PASS, scenario=name))
    return result(environments, cells)


@pytest.mark.thorough
def test_ten_thousand_cells_fit_and_no_hang_is_lost() -> None:
    """The limit holds, in bytes; all unexpected hangs are there, and what is not is counted."""
    report = huge()
    hangs = [found for found in report.cells if found.outcome is Outcome.HANG]
    assert len(hangs) == 20
    for limit in (LIMIT, ISSUE):
        lines = list(markdown_lines(stored(report), COMMAND, limit=limit))
        assert limit * 0.9 < size_of(lines) <= limit
        assert sum(line.startswith("- **HANG") for line in lines) == len(hangs)
        assert f"*10 more are left out, to stay below {limit // 1000} kB.*" in lines  # the environments


def hostile(text: str) -> Result:
    """Return a run in which all that is not ours is `text`."""
    named = environment("2.11.0", id=text, label=text, build=text, config=text, fingerprint={"git_version": text})
    gone = environment(text, id="gone", outcome=Outcome.BROKEN, reason=text)
    fields = {"scenario": text, "variant": {"op": text}, "signature": text, "reason": text, "known": text}
    cells: list[Cell] = [
        cell(named, outcome, expected=expected, **(fields | {"scenario": f"{number}{text}"}))
        for number, (outcome, expected) in enumerate(
            (outcome, expected) for outcome in Outcome for expected in (True, False)
        )
    ]
    return Result(run=Run(id="r", name=text, started=text), environments=(named, gone), cells=tuple(cells))


HOSTILE = "@torvalds `#12` ``` a|b \\| <script>x</script> [a](https://b.c) ![i](j) ~~s~~ *e* _f_ &lt; \x1b[31m\x00\r\n"
HOSTILE += "# h\n\n---\n- l"


def test_no_text_breaks_it() -> None:
    """Whatever somebody wrote yields no HTML, link, mention, emphasis, heading or cell of a table."""
    before = result([OLD], [])
    after = hostile(HOSTILE)
    text = "\n".join(markdown_lines(stored(after), COMMAND, compare(before, after)))
    assert not {kind for kind in reading.kinds(text) if kind.startswith(("html", "link", "image", "em_", "s_", "hr"))}
    assert not [mark for mark in ("@", "#", "://", "<", "\x1b", "\x00") if mark in reading.bare(text)]
    (table,) = reading.tables(text)
    assert {len(row) for row in table} == {3}
    assert len(table) == 1 + len(after.cells)
    titles = [token for token in reading.tokens(text) if token.type == "heading_open"]
    assert len(titles) == 1 + len(headings(text))
