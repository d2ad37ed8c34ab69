"""A script that fails is reduced to little more than the failure, with few questions."""

import ast
import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.triage.minimise.failures import failure, same_failure, traced
from whichtorch.search.runs_oracle import asking, drive
from whichtorch.triage.minimise.minimising import code_lines
from whichtorch.triage.minimise.reduction import Reduction, reduced
from whichtorch.triage.minimise.tree_edit import Program, lines_of

SCRIPTS = Path(__file__).parent / "scripts"
ODD = tuple(path.read_text(encoding="utf-8") for path in sorted((SCRIPTS / "odd").glob("*.py")))


def reduction(source: str, *, is_traced: bool = True, questions: int = 150) -> Reduction:
    failing = traced(source) if is_traced else ()
    return drive(reduced(source, failing, most_questions=questions), asking(same_failure(source)))


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_padded_script_comes_down_to_a_few_lines(path: Path) -> None:
    """A script of a user's size, with classes, settings, loops and messages, ends as at most 15 lines."""
    source = path.read_text(encoding="utf-8")
    found = reduction(source)
    assert failure(found.source) == failure(source)
    assert found.lines <= 15, found.source
    assert found.questions <= 150


@pytest.mark.thorough
@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.stem)
def test_unknown_lines_cost_calls_only(path: Path) -> None:
    """Without the lines that failed, the script is reduced all the same."""
    source = path.read_text(encoding="utf-8")
    found = reduction(source, is_traced=False, questions=300)
    assert failure(found.source) == failure(source)
    assert found.lines < found.lines_before / 2


def test_all_goes_where_the_oracle_wants_nothing() -> None:
    """An oracle that always says yes is left with an empty source."""
    found = drive(reduced("x = 1\nprint(x)\n"), asking(lambda _: True))
    assert (found.source, found.lines, found.is_complete) == ("", 0, True)


def test_what_was_the_smallest_for_a_time_is_known() -> None:
    """Where the smallest source does not hold, those that it was made of can be tried: each one was accepted."""
    source = "a = 1\nb = 2\nc = 3\nd = 4\n"
    asked: list[str] = []

    def is_same(text: str) -> bool:
        asked.append(text)
        return "d = " in text and ("a = " in text or len(asked) > 2)

    reduction = drive(reduced(source), asking(is_same))
    assert reduction.source not in reduction.larger
    assert set(reduction.larger) <= set(asked)
    assert [len(text) for text in reduction.larger] == sorted(len(text) for text in reduction.larger)


def test_the_mode_of_an_export_stays() -> None:
    """Releases differ in what they do without it, so that another would pass for another reason."""
    source = "import torch\ntorch.export.export(model, (1,), strict=True, unused=2)\n"
    found = drive(reduced(source), asking(lambda text: "export(" in text))
    assert "strict=True" in found.source
    assert "unused" not in found.source


def test_source_stays_where_nothing_may_go() -> None:
    """An oracle that always says no leaves the source as it was written."""
    source = "x = 1  # kept\nprint( x )\n"
    found = drive(reduced(source), asking(lambda _: False))
    assert (found.source, found.is_smaller) == (source, False)


def test_what_is_no_python_stays() -> None:
    """A source that does not parse is returned without a question."""
    found = drive(reduced("def (:\n"), asking(lambda _: True))
    assert (found.source, found.questions) == ("def (:\n", 0)


@pytest.mark.thorough
def test_a_reduction_is_a_function_of_its_answers() -> None:
    """The same answers lead a fresh reduction to the same questions, so that an interrupted one goes on."""
    source = (SCRIPTS / "training.py").read_text(encoding="utf-8")
    failing = traced(source)
    oracle = same_failure(source)
    known: dict[str, bool] = {}

    def remembered(candidate: str) -> bool:
        if candidate not in known:
            known[candidate] = oracle(candidate)
        return known[candidate]

    first = drive(reduced(source, failing, most_questions=9), asking(remembered))
    assert (first.questions, first.is_complete, len(known)) == (9, False, 9)
    whole = drive(reduced(source, failing), asking(oracle))
    second = drive(reduced(source, failing), asking(remembered))
    assert second == whole
    assert len(known) == whole.questions


def test_no_source_is_asked_for_twice() -> None:
    """Each question is a new one."""
    source = (SCRIPTS / "training.py").read_text(encoding="utf-8")
    asked: list[str] = []
    oracle = same_failure(source)

    def is_same(candidate: str) -> bool:
        asked.append(candidate)
        return oracle(candidate)

    found = drive(reduced(source), asking(is_same))
    assert len(set(asked)) == len(asked) == found.questions


def test_script_that_fails_by_an_unknown_name_is_reduced() -> None:
    """A name that nothing binds may be the failure itself."""
    found = reduction("import os\nfor i in range(3):\n    print(os.name)\n    print(undefined + i)\n")
    assert failure(found.source) == "NameError: name 'undefined' is not defined"
    assert found.lines == 1


@given(source=st.lists(st.sampled_from(ODD), min_size=1, max_size=4).map("".join), seed=st.integers(0, 1 << 20))
@settings(max_examples=25, deadline=None)
def test_result_is_one_that_the_oracle_accepted(source: str, seed: int) -> None:
    """Whatever the oracle says, the result parses, is one that it said yes to or the source, and is no larger."""
    accepted = set()

    def is_same(candidate: str) -> bool:
        answer = hashlib.sha256(f"{seed}{candidate}".encode()).digest()[0] < seed % 256
        if answer:
            accepted.add(candidate)
        return answer

    found = drive(reduced(source, (seed % 11,), most_questions=40), asking(is_same))
    assert found.source == source or found.source in accepted
    assert Program(tree=ast.parse(found.source)).size <= Program(tree=ast.parse(source)).size
    assert found.lines <= max(lines_of(source), Program(tree=ast.parse(source)).lines)


def test_lines_are_counted_alike_before_and_after() -> None:
    """Statements that share a line are as many lines as where each has its own."""
    assert code_lines("a = 1; b = 2\nif a: c = (a +\n  b)\n# the end\n") == 4
    assert code_lines("a = 1\nb = 2\nif a:\n    c = a + b\n") == 4
    assert code_lines("this is no Python\n\n") == 1
