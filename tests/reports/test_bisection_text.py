"""What a search says at its end, in a terminal and as Markdown, read back by a parser that is not ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.reports import reading
from tests.reports.test_markdown import HOSTILE
from whichtorch.bisect.bisection import Attribution, Bisection, Boundary, Cause, Probe, timeline_of, unjudged_in
from whichtorch.bisect.search_request import AxisName
from whichtorch.model import Attempt, Cell, Diagnosis, Environment, Outcome, StoppedBy
from whichtorch.model.record import Curve, CurveStep, Effect
from whichtorch.reports.bisection_text import bisection_blocks, bisection_lines, cost
from whichtorch.reports.document import markdown
from whichtorch.search.search_state import AnswerKind, Change, Find, SearchVerdict

LINK = "https://github.com/pytorch/pytorch/compare/a...b"
VALUES = tuple(f"2.{minor}.0" for minor in range(8))
WORDS = {
    "H": (Outcome.HANG, SearchVerdict.BAD),
    "p": (Outcome.PASS, SearchVerdict.GOOD),
    "f": (Outcome.FAIL, SearchVerdict.DIFFERENT),
    "u": (Outcome.UNBUILDABLE, SearchVerdict.UNTESTABLE),
    "b": (Outcome.BROKEN, SearchVerdict.UNTESTABLE),
}


def probe(value: str, letter: str, **fields: Any) -> Probe:
    outcome, verdict = WORDS[letter]
    environment = Environment(
        id=value, label=f"torch-{value}", torch=value, python="3.11.7", build="cpu", config="default"
    )
    cell = Cell(environment=value, scenario="repro.py", outcome=outcome, expected=True, seconds=1)
    message = "the canary fails at 'import torch'" if outcome is Outcome.BROKEN else ""
    given: dict[str, Any] = {"k": 1, "n": 1, "reused": 0, "message": message} | fields
    return Probe(value=value, outcome=outcome, verdict=verdict, environment=environment, cell=cell, **given)


def boundary(before: str, after: str, **fields: Any) -> Boundary:
    given: dict[str, Any] = {"from": before, "to": after, "change": Change.FIX, "confidence": 0.9986}
    return Boundary(**given | fields)


def bisection(letters: str, kind: AnswerKind = AnswerKind.BOUNDARY, **fields: Any) -> Bisection:
    """Return a bisection of VALUES: a letter of WORDS for each that was tried, a dot for each that was not."""
    probes = tuple(probe(value, letter) for value, letter in zip(VALUES, letters, strict=True) if letter != ".")
    given: dict[str, Any] = {
        "scenario": "repro.py",
        "question": Find.ANY,
        "axis": AxisName.VERSION,
        "values": VALUES,
        "common": {"build": "cpu", "python": "3.11", "config": "default"},
        "reference": (Outcome.HANG, "stuck in take (repro.py)"),
        "probes": probes,
        "installs": 4,
        "runs": 9,
        "seconds": 61.4,
        "answer": kind,
    }
    return Bisection(**given | fields)


def test_an_exact_boundary() -> None:
    """What was searched, the line of values with a bar at the change, the answer, what it hangs in, and the cost."""
    packages = {"numpy": ("2.2.0", "2.3.0"), "triton": (None, "3.1.0")}
    found = bisection("H.Hp...p", boundaries=(boundary("2.2.0", "2.3.0", commits=LINK, packages=packages),))
    assert list(bisection_lines(found, 100)) == [
        "repro.py: 8 versions of torch, 2.0.0 to 2.7.0; build cpu, python 3.11, config default",
        "",
        "fixed in 2.3.0: last that hangs 2.2.0, first that passes 2.3.0; confidence 0.999",
        "",
        "  2.0.0 HANG  ..1..  2.2.0 HANG |  2.3.0 pass  ..3..  2.7.0 pass",
        "",
        f"  commits: {LINK}",
        "  changed with it: numpy 2.2.0 -> 2.3.0, triton none -> 3.1.0",
        "  it hangs: stuck in take (repro.py)",
        "next: whichtorch fix repro.py --bad 2.2.0 --good 2.3.0  # shows what changed as a patch",
        "4 probes, 4 installs, 9 runs, 61 s",
    ]


def test_a_regression_and_its_own_build() -> None:
    """A regression is told by its first bad value; two wheels of one commit are pointed out."""
    found = bisection("p..pH..H", boundaries=(boundary("2.3.0", "2.4.0", change=Change.REGRESSION, same_commit=True),))
    lines = list(bisection_lines(found, 100))
    assert "broken in 2.4.0: last that passes 2.3.0, first that hangs 2.4.0; confidence 0.999" in lines
    assert "  both were built from the same commit: look at how they were built, and at what they bring" in lines


def test_a_block_between() -> None:
    """With values between that say nothing the boundary is a bracket, and they are listed by the reason."""
    between = {"untestable_between": ("2.3.0",), "different_between": ("2.4.0",), "untried_between": ("2.5.0",)}
    found = bisection("H.Huf.pp", boundaries=(boundary("2.2.0", "2.6.0", **between),))
    lines = list(bisection_lines(found, 200))
    assert (
        lines[4] == "  2.0.0 HANG  ..1..  2.2.0 HANG |  2.3.0 (unbuildable)  2.4.0 FAIL~  ..1..  2.6.0 pass  2.7.0 pass"
    )
    assert [lines[2], *lines[6:9]] == [
        "fixed between 2.2.0 and 2.6.0; confidence 0.999",
        "  between them, could not be tested: 2.3.0",
        "  between them, fails in another way: 2.4.0",
        "  between them, not tried: 2.5.0",
    ]


@pytest.mark.parametrize(
    ("unasked", "words"),
    [
        (("2.3.0",), "2.3.0 was not asked for"),
        (("2.3.0", "2.3.1"), "2.3.0 and 2.3.1 were not asked for"),
        (("2.3.0", "2.3.1", "2.4.0"), "2.3.0, 2.3.1 and 2.4.0 were not asked for"),
    ],
)
def test_releases_that_were_not_asked_for(unasked: tuple[str, ...], words: str) -> None:
    """The change may be in one of them: no release is blamed, and the sentence names them, with who it was."""
    attribution = Attribution(package="torch", cause=Cause.ITSELF)
    found = bisection(
        "H.Hp...p", boundaries=(boundary("2.2.0", "2.5.0", unasked_between=unasked, attribution=attribution),)
    )
    assert list(bisection_lines(found, 200))[2] == (
        f"fixed between 2.2.0 and 2.5.0, by torch itself; {words}; confidence 0.999"
    )


def test_no_fix() -> None:
    """Where it fails everywhere, none fixes it, and the bounds are named below."""
    found = bisection("H..H...H", AnswerKind.NONE, reasons=("3 positions were tested: all are bad",))
    lines = list(bisection_lines(found, 100))
    assert [lines[2], *lines[6:8]] == [
        "none fixes it: it hangs in all 3 versions of torch tried",
        "  it hangs: stuck in take (repro.py)",
        "  note: 3 positions were tested: all are bad",
    ]


def test_no_fix_of_what_may_be_slow() -> None:
    """Where nothing was looked at for long enough to call it a hang, the answer does not call it one."""
    found = bisection("H..H...H", AnswerKind.NONE)
    slow = tuple(probe.model_copy(update={"outcome": Outcome.SLOW}) for probe in found.probes)
    lines = list(bisection_lines(found.model_copy(update={"probes": slow}), 100))
    assert "none fixes it: it hangs or is slow (no longer look was taken) in all 3 versions of torch tried" in lines


@pytest.mark.parametrize(
    ("letters", "kind", "reference", "answer"),
    [
        (
            "f..f...H",
            "none",
            True,
            "none fixes it: it hangs in 1 of the 3 versions of torch tried, and fails in another way in 2",
        ),
        ("p..p...p", "none", False, "nothing to find: it passes in all 3 versions of torch tried"),
        ("p..H...p", "none", True, "no change explains what was seen"),
        ("u......u", "inconclusive", False, "inconclusive: no two values could be told apart"),
    ],
)
def test_an_answer_without_a_change(letters: str, kind: str, reference: bool, answer: str) -> None:
    """All versions that fail are counted, and nothing is claimed that was not seen."""
    found = bisection(letters, AnswerKind(kind), **({} if reference else {"reference": None}))
    assert list(bisection_lines(found, 200))[2] == answer


def test_it_passes_only_where_it_could_be_judged() -> None:
    """The first line says which values said nothing, and why: a claim about all of them would be wrong."""
    found = bisection("ubfp...p", AnswerKind.NONE, reference=None)
    found = found.model_copy(update={"unjudged": unjudged_in(found.probes)})
    assert found.unjudged == {
        "no environment can be made": ("2.0.0",),
        "torch cannot be imported": ("2.1.0",),
        "it fails in another way": ("2.2.0",),
    }
    assert list(bisection_lines(found, 200))[2] == (
        "no change was seen: it passes in all 2 versions of torch that were tested, 2.3.0 to 2.7.0; "
        "no environment can be made with 2.0.0; torch cannot be imported with 2.1.0; it fails in another way with 2.2.0"
    )
    newest = bisection("pp.....b", AnswerKind.INCONCLUSIVE, reference=None)
    newest = newest.model_copy(update={"unjudged": unjudged_in(newest.probes)})
    assert list(bisection_lines(newest, 200))[2] == (
        "inconclusive: it passes in all 2 versions of torch that were tested, 2.0.0 to 2.1.0; "
        "torch cannot be imported with 2.7.0"
    )


def test_reasons_that_differ_only_in_the_value_are_told_once() -> None:
    """What excludes many releases of a package names each of them."""
    found = bisection("uu.p...p", AnswerKind.NONE, reference=None)
    probes = tuple(
        probe.model_copy(update={"message": f"lib>=2.2 is needed and you require lib=={probe.value}"})
        if probe.verdict is SearchVerdict.UNTESTABLE
        else probe
        for probe in found.probes
    )
    lines = list(bisection_lines(found.model_copy(update={"probes": probes}), 200))
    assert [line for line in lines if "no evidence" in line] == [
        "  no evidence: 2.0.0, 2.1.0: unbuildable: lib>=2.2 is needed and you require lib==2.0.0"
    ]


def test_an_inconclusive_bracket_blames_nobody() -> None:
    """A bracket is told with its probability, without a culprit and without a bar."""
    found = bisection("H..p....", AnswerKind.INCONCLUSIVE, boundaries=(boundary("2.0.0", "2.3.0", confidence=0.62),))
    lines = list(bisection_lines(found, 100))
    assert lines[4] == "  2.0.0 HANG  ..2..  2.3.0 pass  ..4.."
    assert lines[2] == "inconclusive: a fix between 2.0.0 and 2.3.0, with probability 0.62"


def test_flaky_values_show_how_often() -> None:
    """A value whose runs disagree is shown with k of n."""
    found = bisection("p......p").model_copy(update={"probes": (probe("2.0.0", "H", k=2, n=5), probe("2.7.0", "p"))})
    assert next(line for line in bisection_lines(found, 100) if "HANG" in line) == (
        "  2.0.0 HANG 2/5  ..6..  2.7.0 pass"
    )


@pytest.mark.parametrize(("width", "expected"), [(200, 1), (60, 2), (48, 3)])
def test_a_long_line_of_values_is_wrapped_between_them(width: int, expected: int) -> None:
    """The line of values is broken where the terminal ends, never inside a value."""
    found = bisection("HHHHpppp", boundaries=(boundary("2.3.0", "2.4.0"),))
    lines = list(bisection_lines(found, width))
    strip = lines[4 : lines.index("", 4)]
    assert len(strip) == expected
    assert "".join(strip).count("HANG") == 4
    assert all(len(line) <= width for line in strip)
    assert all(line.startswith("  2.") for line in strip)


def test_what_was_known_before_is_counted() -> None:
    """Values that cost nothing because an earlier run had tried them are told."""
    probes = (probe("2.0.0", "H", reused=1), probe("2.7.0", "p"))
    assert cost(bisection("p......p").model_copy(update={"probes": probes})) == (
        "2 probes (1 known before), 4 installs, 9 runs, 61 s"
    )


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
    text = "\n".join(markdown(bisection_blocks(found, tmp_path.joinpath)))
    assert text.startswith("## repro.py: 8 versions of torch, 2.0.0 to 2.7.0; build cpu, python 3.11, config default\n")
    answer = "fixed in 2.3.0: last that hangs 2.2.0, first that passes 2.3.0; confidence 0.999"
    assert f"\n\n{answer}\n\n|" in text
    assert f"\n| commits | <{LINK}> |\n" in text
    _evidence, first, second = reading.tables(text)
    assert [row[:3] for row in first] == [
        ["version", "outcome", "runs"],
        ["2.2.0", "HANG", "1 of 1"],
        ["2.3.0", "pass", "1 of 1"],
    ]
    assert second == [["package", "2.2.0", "2.3.0"], ["numpy", "2.2.0", "2.3.0"]]
    assert "- waits for the GIL\n- stage: boxed kernel\n" in text
    assert "```text\nTraceback\nValueError: as it was\n```" in text
    assert text.endswith("```text\nx\n```")


def curve(**fields: Any) -> Curve:
    """Return a curve of VALUES that rises once, measured at its ends and at the step."""
    given: dict[str, Any] = {
        "name": "peak",
        "unit": "MB",
        "total": (0.1, 0.09, 0.11),
        "steps": (CurveStep(before="2.2.0", after="2.3.0", change=(0.1, 0.09, 0.11), effect=Effect.WORSE),),
        "levels": {"2.0.0": (0, 0, 0), "2.2.0": (0, -0.01, 0.01), "2.3.0": (0.1, 0.09, 0.11), "2.7.0": (0.1, 0.1, 0.1)},
        "values": {"2.0.0": 500, "2.2.0": 500, "2.3.0": 550, "2.7.0": 550},
        "missing": {"2.5.0": "it prints no loss"},
    }
    return Curve(**given | fields)


def test_a_search_for_a_change_of_a_number_has_the_numbers(tmp_path: Path) -> None:
    """Each value with its change and the interval, and no runs, seconds or failures, of which it has none."""
    found = bisection("H.pp...p", reference=None, curve=curve(), boundaries=(boundary("2.2.0", "2.3.0"),))
    text = "\n".join(markdown(bisection_blocks(found, tmp_path.joinpath)))
    assert "\n\npeak is worse in 2.3.0: +10 % [+9, +11] against 2.2.0\n\n" in text
    table, evidence = reading.tables(text)
    assert ["no evidence", "2.5.0: it prints no loss"] in evidence
    assert table == [
        ["version", "peak", "against 2.0.0"],
        ["2.0.0", "500 MB", ""],
        ["2.2.0", "500 MB", "+0 % [-1, +1]"],
        ["2.3.0", "550 MB", "+10 % [+9, +11]"],
        ["2.7.0", "550 MB", "+10 %"],
    ]
    assert "The failure" not in text


def test_a_number_that_changes_gradually_has_no_step(tmp_path: Path) -> None:
    """The answer does not say that nothing changed."""
    found = bisection("p.pp...p", AnswerKind.NONE, reference=None, curve=curve(steps=(), threshold=0.05))
    text = "\n".join(markdown(bisection_blocks(found, tmp_path.joinpath)))
    assert "\n\npeak: +10 % [+9, +11] from 2.0.0 to 2.7.0, but no single step of 5 %\n" in text


def test_two_neighbors_without_a_step_are_told() -> None:
    """With the size that counts, because they may differ by less."""
    found = bisection("p.pp...p", AnswerKind.NONE, curve=curve(steps=(), threshold=0.05, alike=(("2.2.0", "2.3.0"),)))
    note = "  note: no step of 5 % was found between 2.2.0 and 2.3.0"
    assert note in list(bisection_lines(found, 100))


def test_no_text_breaks_it(tmp_path: Path) -> None:
    """A commit's subject, an exception's words or a script's name are shown, and nothing but shown."""
    hostile = probe("2.0.0", "H", title=HOSTILE, signature=HOSTILE, message=HOSTILE)
    probes = (hostile, probe("2.7.0", "u", message=HOSTILE))
    found = bisection(
        "H......p", boundaries=(boundary("2.0.0", "2.7.0"),), scenario=HOSTILE, probes=probes, reasons=(HOSTILE,)
    )
    text = "\n".join(markdown(bisection_blocks(found, tmp_path.joinpath)))
    text = "\n".join(
        line for line in text.splitlines() if not line.startswith(("<details>", "<summary>", "</details>"))
    )
    assert not {kind for kind in reading.kinds(text) if kind.startswith(("html", "link", "image", "em_", "s_", "hr"))}
    assert not [mark for mark in ("@", "#", "://", "<", "\x1b", "\x00") if mark in reading.bare(text)]
    _evidence, table = reading.tables(text)
    assert [len(row) for row in table] == [5, 5, 5]


def test_a_few_passes_of_what_comes_and_goes_may_be_luck() -> None:
    """A failure of half of all runs is not gone where two runs pass; where eight pass, it is."""
    runs = {"2.0.0": (1, 2), "2.2.0": (2, 2), "2.3.0": (1, 2), "2.7.0": (8, 8)}
    probes = [probe(value, "H" if value in {"2.0.0", "2.3.0"} else "p", k=k, n=n) for value, (k, n) in runs.items()]
    lines = list(bisection_lines(bisection("H.pH...p", probes=tuple(probes), timeline=timeline_of(probes)), 100))
    assert "2.2.0    pass in 2 runs, which may be luck (probability 0.25)" in lines
    assert "2.7.0    pass" in lines
