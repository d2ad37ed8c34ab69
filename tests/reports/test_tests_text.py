"""What a search of many tests says, as text and as Markdown."""

from pathlib import Path
from typing import Any

from whichtorch.bisect.bisection import Bisection, Boundary, SearchedTest
from whichtorch.bisect.search_request import AxisName
from whichtorch.model import Outcome
from whichtorch.reports.bisection_text import bisection_blocks, bisection_lines
from whichtorch.reports.document import Items, markdown
from whichtorch.reports.page.pictures import bisection_picture
from whichtorch.search.search_state import AnswerKind, Find


def search(**fields: Any) -> Bisection:
    known = {
        "scenario": "-- pytest tests",
        "question": Find.ANY,
        "axis": AxisName.VERSION,
        "values": ("2.0.0", "2.1.0", "2.2.0", "2.3.0"),
        "order": ("2.0.0", "2.3.0", "2.1.0"),
        "answer": AnswerKind.BOUNDARY,
        "installs": 3,
        "runs": 4,
        "others": {"pass": ("a::passes",), "absent -> fail": ("a::new",)},
    }
    return Bisection.model_validate(known | fields)


def change(*ids: str, **fields: Any) -> Boundary:
    known = {"from": "2.0.0", "to": "2.1.0", "change": "regression", "confidence": 0.99, "what": "ValueError: no"}
    return Boundary.model_validate(known | {"tests": ids} | fields)


SURE = SearchedTest(answer=AnswerKind.BOUNDARY, boundaries=(("2.0.0", "2.1.0"),), confidence=0.99)


def test_a_change_is_told_with_its_tests() -> None:
    """A line says between which values, how many tests, what they show and how sure it is; a few are named."""
    ids = [f"a::test_{number}" for number in range(10)]
    found = search(boundaries=(change(*ids, untried_between=("2.0.1",)),), tests=dict.fromkeys(ids, SURE))
    lines = list(bisection_lines(found, 80))
    at = lines.index("2.0.0 -> 2.1.0: broken, 10 tests, ValueError: no; confidence 0.99")
    assert "  2.0.0 |  2.1.0  ..1..  2.3.0" in lines[at:]
    assert lines[at + 1] == "  a::test_0"
    assert lines[at + 9 : at + 11] == ["  and 2 more", "  between them, not tried: 2.0.1"]
    assert lines[at + 11 : at + 13] == [
        "not searched, pass at both ends: 1 test",
        "not searched, absent -> fail: 1 test: a::new",
    ]
    assert lines[-1] == "3 probes, 3 installs, 4 runs, 0 s"


def test_releases_between_that_were_not_asked_for_are_named() -> None:
    """The line of a change says that it may be in one of them."""
    found = search(boundaries=(change("a::test", unasked_between=("2.0.1", "2.0.2")),), tests={"a::test": SURE})
    said = "2.0.0 -> 2.1.0: broken, 1 test, ValueError: no; 2.0.1 and 2.0.2 were not asked for; confidence 0.99"
    assert said in bisection_lines(found, 80)


def test_what_could_not_be_told_is_said_with_its_reason() -> None:
    """Tests of one reason stand together; a flaky one says so."""
    spent = ("the limit of 28 runs is reached",)
    unsure = SearchedTest(answer=AnswerKind.INCONCLUSIVE, boundaries=(("2.0.0", "2.3.0"),), reasons=spent)
    flaky = SearchedTest(
        answer=AnswerKind.NONE, reasons=("it fails now and then everywhere",), flaky={"2.0.0": "3 of 8"}
    )
    same = SearchedTest(answer=AnswerKind.NONE, reasons=("all are bad",))
    mixed = SURE.model_copy(update={"outcomes": {"2.1.0": Outcome.FAIL}, "flaky": {"2.1.0": "3 of 8"}})
    tests = {"a::one": unsure, "a::two": unsure, "a::coin": flaky, "a::same": same, "a::mostly": mixed}
    lines = list(bisection_lines(search(tests=tests, boundaries=(change("a::mostly"),)), 80))
    at = lines.index("inconclusive, 2 tests: between 2.0.0 and 2.3.0; the limit of 28 runs is reached")
    assert lines[at + 1 : at + 8] == [
        "  a::one",
        "  a::two",
        "flaky, 1 test: it fails now and then everywhere",
        "  a::coin",
        "no change, 1 test: all are bad",
        "  a::same",
        "flaky among them: a::mostly (2.1.0 FAIL 3 of 8)",
    ]


def test_nothing_changed() -> None:
    """Where no test differs, the answer says just that."""
    lines = list(bisection_lines(search(answer=AnswerKind.NONE, others={"pass": ("a::passes",)}), 80))
    assert "nothing to find: each test ends the same at both ends" in lines


def test_markdown_names_every_test(tmp_path: Path) -> None:
    """Each change has a section with the ids of all its tests, whatever characters they have."""
    ids = [f"a::test_{number}[<b>|`x`]" for number in range(10)]
    found = search(boundaries=(change(*ids),), tests=dict.fromkeys(ids, SURE))
    text = "\n".join(markdown(bisection_blocks(found, tmp_path.joinpath)))
    assert "- 2.0.0 -> 2.1.0: broken, 10 tests, ValueError: no; confidence 0.99\n- not searched, pass" in text
    assert "### 2.0.0 to 2.1.0: ValueError: no" in text
    assert all(id_ in text for id_ in ids)


def test_the_page_has_its_lines() -> None:
    """A search without probes of its own is drawn with its boundaries."""
    picture = bisection_picture(search(boundaries=(change("a::test"),), tests={"a::test": SURE}))
    _, items, _cost = picture["blocks"]
    assert isinstance(items, Items)
    assert items.lines[0] == "2.0.0 -> 2.1.0: broken, 1 test, ValueError: no; confidence 0.99"
    assert len(picture["line"]["boundaries"]) == 1
