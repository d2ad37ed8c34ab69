"""A case in words: as Markdown for an issue, and as a card on a page."""

from pathlib import Path

from tests.reports.pages import bisection, called, real
from whichtorch.model import Outcome
from whichtorch.reports.case_text import ERROR_LINES, case_document, case_lines
from whichtorch.reports.document import markdown
from whichtorch.reports.page.html import page
from whichtorch.reports.run_facts import RunFacts
from whichtorch.triage.case import Case, CaseEnvironment, Classification, Ladder, Minimal, Newest, Reproduction, Rung

CAUSE = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'x'\n"
ENDING = f"a line before\n{CAUSE}\nThe above exception was the direct cause of the following exception:\n\n{CAUSE}"


def case(stderr: str = ENDING, **fields: object) -> Case:
    """Return a case of a script that fails, with what is given beside it."""
    seen = Reproduction(
        failing=3,
        runs=3,
        outcome=Outcome.FAIL,
        signature="ValueError in mm (_ops.py)",
        message="no <b>such</b> size | none",
        seconds=4.04,
        limit=16,
        stderr=stderr,
    )
    here = CaseEnvironment(label="torch-2.6.0-pypi", torch="2.6.0", python="3.11.7")
    known = {"name": "repro", "script": "repro.py", "source_hash": "abc", "environment": here, "reproduction": seen}
    return Case.model_validate({**known, **fields})


def minimal(source: str) -> Minimal:
    return Minimal(source=source, method="cut", lines=1, lines_before=9, runs=4, seconds=2, is_verified=True)


def text(given: Case) -> str:
    return "\n".join(markdown(case_document(given)))


def test_the_title_is_what_it_fails_with() -> None:
    """The words of an exception are code, whatever they hold."""
    shown = text(case())
    assert shown.startswith("# FAIL: `ValueError: no <b>such</b> size | none`\n")
    assert "- it fails in 3 of 3 runs, after 4.0 s in torch 2.6.0\n" in shown


def test_the_error_is_the_last_exception_with_its_causes() -> None:
    """What a script wrote before is left out, the middle of a long traceback as well."""
    shown = text(case())
    assert shown.count("KeyError: 'x'") == 2
    assert "a line before" not in shown
    frames = "".join(f'  File "a.py", line {number}, in f\n' for number in range(100))
    long = text(case(f"{CAUSE[:34]}\n{frames}E: x"))
    assert "[... 62 lines ...]" in long
    assert "line 0, in f" in long
    assert "line 99, in f" in long
    assert ERROR_LINES == 40


def test_what_the_newest_release_shows_is_told() -> None:
    """It shows the same, or what it comes to."""
    same = Newest(torch="2.15.0", outcome=Outcome.FAIL, is_same=True)
    assert "- the newest release, 2.15.0, shows the same failure" in text(case(newest=same, bisection=bisection()))
    passes = Newest(torch="2.15.0", outcome=Outcome.PASS, is_same=False)
    assert "- the newest release, 2.15.0: pass" in text(case(newest=passes, bisection=bisection()))


def test_evidence_names_the_guilty_application() -> None:
    """The ladder has its table; what it led to is said once."""
    rungs = (Rung(name="inductor", outcome=Outcome.FAIL, is_same=True),)
    found = Classification(
        category="accuracy",
        words="it is wrong",
        layer="Inductor",
        mode="torch.compile",
        evidence=("it needs number 3",),
    )
    shown = text(case(classification=found, ladder=Ladder(rungs=rungs)))
    assert "- accuracy: it is wrong; look at Inductor (torch.compile)\n" in shown
    assert "- it needs number 3" in shown
    assert "| `inductor` | FAIL | the same failure |" in shown


def test_a_page_shows_a_case() -> None:
    """Its heading, its sentences and its script; nothing of it is markup."""
    found = case(minimal=minimal("print('<script>alert(1)</script>')"))
    shown = page(RunFacts(stored=real(), cases=(found,)), called)
    assert "print(&#39;&lt;script&gt;alert(1)" in shown
    assert "<script>alert(1)" not in shown
    assert "<h2>repro: FAIL: ValueError: no &lt;b&gt;such&lt;/b&gt; size | none</h2>" in shown
    assert ">it fails in 3 of 3 runs, after 4.0 s in torch 2.6.0</p>" in shown
    assert (
        ">minimal script: 1 of 9 lines (cut), 4 runs; in a process and caches of its own it fails in the same way<"
        in shown
    )


def test_the_error_beside_the_smallest_script_is_its_own() -> None:
    """The original fails at another line, with another number."""
    own = CAUSE.replace("'x'", "'y'")
    small = minimal("f()\n").model_copy(update={"error": own})
    shown = text(case(minimal=small))
    assert "KeyError: 'y'" in shown
    assert "KeyError: 'x'" not in shown
    assert "KeyError: 'x'" in text(case(minimal=minimal("f()\n")))  # a case of before has none
    assert "- the smallest script fails with KeyError: 'y'" in shown


def test_a_screen_has_the_same_sentences(tmp_path: Path) -> None:
    """The headline, each layer, what was found, and where the case is."""
    rungs = (
        Rung(name="eager", outcome=Outcome.PASS, is_same=False),
        Rung(name="inductor", outcome=Outcome.FAIL, is_same=True),
    )
    lines = ["".join(line) for line in case_lines(case(ladder=Ladder(rungs=rungs)), tmp_path)]
    assert lines[0] == "repro: FAIL: ValueError: no <b>such</b> size | none"
    assert [line.split() for line in lines[3:5]] == [["eager", "pass"], ["inductor", "FAIL", "the", "same", "failure"]]
    assert lines[5:] == ["  it fails in 3 of 3 runs, after 4.0 s in torch 2.6.0", f"  the case is in {tmp_path}; 0 s"]
