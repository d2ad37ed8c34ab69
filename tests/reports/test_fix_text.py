"""What a search for a fix says at its end: cured, not in Python, not known, and nothing to compare."""

from dataclasses import replace
from typing import Any

import pytest

from whichtorch.fix.commission import FixAnswer
from whichtorch.fix.fixing import Fix
from whichtorch.fix.origins import Origin
from whichtorch.reports.document import markdown
from whichtorch.reports.fix_text import fix_blocks, fix_lines

DIFF = "--- a/torch/m.py\n+++ b/torch/m.py\n@@ -1 +1 @@\n-FLAG = 1\n+FLAG = 2\n"
CURED = Fix(
    patch=DIFF,
    units=tuple(f"torch/m.py: f{number} (changed)" for number in range(10)),
    trials=3,
    trials_to_cure=1,
    with_patch=(3, 3),
    without_patch=(0, 3),
    reverted="same",
)


ORIGIN = Origin(
    commit="3f2a91c" + 33 * "0",
    subject="Fix add of meta tensors (#177524)",
    date="2026-03-02",
    pull_request=177524,
    taken_back=False,
    lines=2,
    paths=("torch/m.py",),
)


def told(fix: Fix | None) -> list[str]:
    answer = FixAnswer(scenario="repro.py", bad="2.11.0", good="2.12.0", fix=fix, command="nox -s fix -- repro.py")
    return ["".join(line) for line in fix_lines(answer, "output/fix.diff", "nox -s matrix")]


def report(**fields: Any) -> str:
    """Return the document for an issue."""
    answer = FixAnswer(scenario="repro.py", bad="2.11.0", good="2.12.0", command="nox -s fix -- repro.py", **fields)
    return "\n".join(markdown(fix_blocks(answer, "output/fix.diff", "nox -s matrix")))


def test_a_cure_names_its_lines_units_and_proof() -> None:
    """The answer counts lines and runs, names what changes, and says where the patch is and how to try it."""
    lines = told(CURED)
    assert lines[0] == "repro.py, 2.11.0 (bad) and 2.12.0 (good): cured by 2 lines of Python"
    assert lines[9] == "  and 2 more"
    assert lines[10] == (
        "  with the patch 3 of 3 runs pass, without it 0 of 3 runs; "
        "taken back from the good release, the failure returns"
    )
    assert lines[11] == "  the patch is in output/fix.diff; to try it: nox -s matrix"


def test_runs_ahead_are_counted_apart() -> None:
    """What several jobs ran and the search did not ask for is told beside its trials."""
    assert told(CURED)[-1] == "3 trials, 0 s; 1 to the first cure"
    ahead = told(replace(CURED, trials_ahead=2))
    assert ahead[-1] == "3 trials and 2 ahead that were not needed, 0 s; 1 to the first cure"


@pytest.mark.parametrize(
    ("reverted", "words"),
    [
        ("cured", "the good release passes without it, too"),
        ("unresolved", "that fails in another way"),
        ("", "it could not be taken back"),
    ],
)
def test_what_taking_it_back_did_is_told(reverted: str, words: str) -> None:
    """A patch that is a way round, rather than the fix, is told as such."""
    assert any(words in line for line in told(replace(CURED, reverted=reverted)))


@pytest.mark.parametrize(
    ("fix", "words"),
    [
        (Fix(why_not=("it fails in native code",)), "not in Python alone\n  it fails in native code"),
        (Fix(notes=("the budget was used up",)), "not known, no cure was found\n  note: the budget was used up"),
        (None, "no two releases could be told apart"),
    ],
)
def test_an_answer_without_a_patch(fix: Fix | None, words: str) -> None:
    """Evidence, a spent budget and a missing pair of releases are three different answers."""
    assert words in "\n".join(told(fix))


def test_commits_are_named_by_subject_and_number() -> None:
    """Each commit says how many of the lines are its own; a number that the subject lacks is added, a missing not."""
    others = (
        replace(ORIGIN, subject="Fix add", lines=1),
        replace(ORIGIN, subject="Break add", pull_request=None, taken_back=True, lines=1),
    )
    lines = told(replace(CURED, origins=(ORIGIN, *others)))
    assert [line for line in lines if "3f2a91c" in line] == [
        "  brought by 3f2a91c Fix add of meta tensors (#177524): 2 of 2 lines",
        "  brought by 3f2a91c Fix add (#177524): 1 of 2 lines",
        "  takes back 3f2a91c Break add: 1 of 2 lines",
    ]


def test_many_commits_are_counted() -> None:
    """Of a patch that goes back to many commits, those with the most lines are named, and the others counted."""
    lines = told(replace(CURED, origins=(ORIGIN,) * 11))
    assert sum("3f2a91c" in line for line in lines) == 8
    assert "  and 3 more commits: 6 of 2 lines" in lines


def test_the_report_has_the_answer_the_patch_and_the_command() -> None:
    """It says what the lines say; the number of a commit's pull request is a link to it."""
    text = report(fix=replace(CURED, origins=(ORIGIN,)))
    assert text.startswith("## What cures `repro.py`\n\nrepro.py, 2.11.0 (bad) and 2.12.0 (good): cured by 2 lines")
    link = "[#177524](https://github.com/pytorch/pytorch/pull/177524)"
    assert f"- brought by 3f2a91c Fix add of meta tensors ({link}): 2 of 2 lines" in text
    assert DIFF.strip() in text
    assert text.endswith("```text\nnox -s fix -- repro.py\n```")


def test_the_manner_of_a_cure_is_told() -> None:
    """How it cures stands below what it changes; in Markdown, the code in it is code."""
    fix = replace(CURED, manner=("it changes a setting: `x = 1` becomes `2`",))
    assert told(fix)[10] == "  it changes a setting: `x = 1` becomes `2`"
    assert "- it changes a setting: `x = 1` becomes `2`\n" in report(fix=fix)
