"""What is said of a busy loop of the user's, from what its process answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from whichtorch.hangs.busy_loop import busy_loop
from whichtorch.process.supervision import LoopAnswers

if TYPE_CHECKING:
    from pathlib import Path

NESTED = """\
def train(model, steps):
    for step in range(steps):
        while not model.done:
            model.go()
    return model


def main():
    total = 0
    while total < 1000:
        total += 1
    pass


main()
"""


class Answers:
    """The answers of a process that runs a script."""

    def __init__(self, script: Path) -> None:
        self.script, self.rows = script, list[dict[str, Any]]()

    def at(self, after: float, *frames: tuple[str, int, dict[str, Any]], hidden: str = "") -> Answers:
        """Add an answer: where it was after so many seconds, the innermost frame first; "?" is a value unseen."""
        rows = [
            {
                "file": str(self.script),
                "function": function,
                "line": line,
                "values": {name: [None if value == "?" else hash(value), str(value)] for name, value in values.items()},
            }
            for function, line, values in frames
        ]
        self.rows.append({"after": after, "frames": rows, "hidden": hidden})
        return self

    def told(self, seconds: float, *, repeats: bool = False) -> Any:
        return busy_loop(LoopAnswers.model_validate({"repeats": repeats, "answers": self.rows}), seconds)


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    """Return answers of a script with loops in loops."""
    script = tmp_path / "train.py"
    script.write_text(NESTED)
    return Answers(script)


def test_a_repeated_state_never_ends(answers: Answers) -> None:
    """The loop is quoted with its place, and what has not changed in it is named."""
    for after in (3.0, 3.6, 4.8):
        answers.at(after, ("main", 10, {"total": 0}), ("<module>", 15, {}))
    loop = answers.told(5.0, repeats=True)
    assert loop.words == (
        "busy in `while total < 1000` (train.py:10) for 2 of 5 s; `total` has not changed: the state of the loop "
        "repeats, so it never ends"
    )
    assert (loop.place, loop.repeats, loop.moves) == ("train.py:10", True, False)


def test_progress_is_counted(answers: Answers) -> None:
    """A counter is told with its goal and its pace, and what moves may be only slow."""
    for after, total in ((5.0, 11), (35.0, 211), (45.0, 411)):
        answers.at(after, ("main", 11, {"total": total}), ("<module>", 15, {}))
    loop = answers.told(45.0)
    assert loop.words == (
        "busy in `while total < 1000` (train.py:10) for 40 of 45 s; still changing, perhaps only slow: "
        "`total` 411 of 1000, 10 a second"
    )
    assert (loop.repeats, loop.moves) == (False, True)


def test_progress_of_a_for_loop_has_its_range(answers: Answers) -> None:
    """The end of a range is known where it is a number or a variable, and a slow pace is told by the minute."""
    for after, step in ((10.0, 2), (70.0, 12)):
        answers.at(after, ("train", 2, {"step": step, "steps": 50}), ("<module>", 15, {}))
    assert answers.told(70.0).words.endswith("perhaps only slow: `step` 12 of 50, 10 a minute")


def test_what_moves_without_a_number_is_named(answers: Answers) -> None:
    """Variables that are no numbers have no pace; three of them are named at most."""
    answers.script.write_text("while a:\n    a = b = c = d = f(a)\n")
    for after in (3.0, 4.0):
        answers.at(after, ("<module>", 2, {name: f"{name} after {after}" for name in "abcd"}))
    assert answers.told(5.0).words.endswith("; still changing, perhaps only slow: `a`, `b`, `c`")


def test_a_number_that_goes_up_and_down_has_no_pace(answers: Answers) -> None:
    """A random number is named as what changes, but it gets nowhere."""
    for after, total in ((5.0, 11), (35.0, 3), (45.0, 8)):
        answers.at(after, ("main", 11, {"total": total}), ("<module>", 15, {}))
    assert answers.told(45.0).words.endswith("; still changing, perhaps only slow: `total`")


def test_a_condition_that_stays_the_same_is_told(answers: Answers) -> None:
    """Where all else changes, what decides and has not changed is told first."""
    answers.script.write_text("while not done.all():\n    new = draw()\n    done = done | new.ok\n")
    for after in (3.0, 4.0, 9.0):
        answers.at(after, ("<module>", 2, {"done": "no", "new": f"drawn at {after}"}))
    loop = answers.told(10.0)
    assert loop.words.endswith("; `done`, by which the loop ends, has not changed; still changing: `new`")
    assert (loop.repeats, loop.moves) == (False, True)


def test_a_loop_of_a_library_is_told_where_the_users_code_is_in_none(answers: Answers, tmp_path: Path) -> None:
    """It has its own line and that of the user's call; a loop of the user's around it is told instead."""
    library = tmp_path / "sample.py"
    library.write_text(NESTED)
    inner = {"file": str(library), "function": "main", "line": 11, "is_users": False, "values": {"total": [1, "1"]}}
    for after in (3.0, 4.0):
        answers.at(after, ("<module>", 15, {}))
    for row in answers.rows:
        row["frames"].insert(0, inner)
    words = (
        "busy in `while total < 1000` (sample.py:10), called from train.py:15, for 2 of 5 s; `total` has not changed"
    )
    assert answers.told(5.0).words == words
    for row in answers.rows:
        row["frames"][1:] = [{**inner, "file": str(answers.script), "is_users": True}]
    assert answers.told(5.0).place == "train.py:10"


@pytest.mark.parametrize(
    ("hidden", "values", "words"),
    [
        (
            "other threads run",
            {"total": 7},
            "`total` has not changed; cannot tell whether the loop ends: other threads run",
        ),
        ("it uses `time`", {"total": "?"}, "cannot tell whether the loop ends: it uses `time`"),
        ("", {"total": 7}, "`total` has not changed"),
        ("", {}, ""),
    ],
)
def test_what_cannot_be_seen_is_said(answers: Answers, hidden: str, values: dict[str, Any], words: str) -> None:
    """Where nothing visible changes and the state cannot be seen, the reason is told and nothing is claimed."""
    for after in (3.0, 4.0):
        answers.at(after, ("main", 11, values), ("<module>", 15, {}), hidden=hidden)
    loop = answers.told(5.0)
    place = "busy in `while total < 1000` (train.py:10) for 2 of 5 s"
    assert loop.words == "; ".join(filter(None, (place, words)))
    assert (loop.repeats, loop.moves) == (False, False)


def test_the_innermost_loop_that_had_most_of_the_time_is_told(answers: Answers) -> None:
    """An inner loop that began only just now is a step of the outer one; one that has lasted is where it is stuck."""
    inner = ("train", 4, {"step": 5, "steps": 9, "model": "m"})
    answers.at(1.0, ("train", 2, {"step": 4, "steps": 9, "model": "m"}), ("<module>", 15, {}))
    answers.at(9.0, inner, ("<module>", 15, {}))
    assert answers.told(10.0).place == "train.py:2"
    answers.at(15.0, inner, ("<module>", 15, {})).at(19.0, inner, ("<module>", 15, {}))
    loop = answers.told(20.0)
    assert (loop.place, loop.moves) == ("train.py:3", False)
    assert loop.words.startswith("busy in `while not model.done` (train.py:3) for 11 of 20 s")


def test_only_one_call_of_a_function_counts(answers: Answers) -> None:
    """A loop that was entered from another line of the caller's is another loop."""
    answers.at(1.0, ("main", 11, {"total": 1}), ("<module>", 3, {}))
    answers.at(9.0, ("main", 11, {"total": 1}), ("<module>", 15, {}))
    assert answers.told(10.0).words.startswith("busy in `while total < 1000` (train.py:10) for 1 of 10 s")


def test_what_is_in_no_loop_is_not_told(answers: Answers) -> None:
    """Without an answer, without a frame of the user's, and outside of loops, there is nothing to say."""
    assert answers.told(5.0) is None
    assert answers.at(1.0).told(5.0) is None
    assert answers.at(3.0, ("main", 9, {}), ("<module>", 15, {})).told(5.0) is None
    assert answers.at(3.0, ("main", 12, {"total": 1000})).told(5.0) is None


def test_a_script_that_is_gone_is_not_told(answers: Answers) -> None:
    """Without its source, nobody knows where a loop begins."""
    answers.at(3.0, ("main", 11, {"total": 1}))
    answers.script.unlink()
    assert answers.told(5.0) is None


def test_a_long_line_is_cut(answers: Answers) -> None:
    """A loop's head is quoted up to sixty characters."""
    answers.script.write_text(f"while {' or '.join(f'name{number}' for number in range(20))}:\n    pass\n")
    answers.at(3.0, ("<module>", 2, {}))
    (quoted,) = (part for part in answers.told(5.0).words.split("`") if part.startswith("while"))
    assert (len(quoted), quoted[-1]) == (61, "…")
