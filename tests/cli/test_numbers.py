"""Numbers as tests on stand-in wheels, as a user gives them: tables, searches, sentences, exit codes, mistakes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import User, alive_in, wait_for
from tests.patience import PATIENCE
from tests.wheels import build_companion, build_wheel

LOSS = {"9.1.0": "0.5", "9.2.0": "0.5", "9.3.0": "0.75", "9.4.0": "0.75", "9.5.0": "0.75"}
PRINTS_LOSS = "NOTE\nimport torch\nprint(f'loss={torch.behaviour}')\n"
BUILD = ("--build", "pypi")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return a folder with five releases, of which the third changes the loss, and one that cannot be imported."""
    folder = tmp_path / "wheels"
    build_companion(folder, "numpy", "2.2.0")
    for version, loss in LOSS.items():
        build_wheel(folder, version, behaviour=loss)
    build_wheel(folder, "9.6.0", behaviour="fails to import")
    return folder


def given(user: User, *arguments: str, code: int = 0) -> str:
    """Give a command, check its exit code, and return what it said."""
    ended = user.run(*arguments, *BUILD)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def written(user: User, name: str = "answer.json") -> dict[str, Any]:
    return json.loads((user.folder / name).read_text())  # type: ignore[no-any-return]


def numbers(user: User) -> list[dict[str, Any]]:
    return [number for cell in written(user)["cells"] for number in cell["numbers"]]


@pytest.mark.thorough
def test_a_matrix_compares_a_printed_number(user: User) -> None:
    """A number without noise takes three rounds, perhaps after one that warms up; the exit code tells a change."""
    user.script("repro.py", PRINTS_LOSS)
    asked = ("matrix", "repro.py", "--torch", "9.1.0,9.2.0,9.3.0", "--measure", "loss")
    said = given(user, *asked, "--worse", "+-1e-4", "--json", "answer.json", code=1)
    assert [(each["value"], each["effect"]) for each in numbers(user)] == [
        (0.5, None),
        (0.5, "same"),
        (0.75, "different"),
    ]
    assert [each["change"] for each in numbers(user)] == [None, [0.0] * 3, [0.25] * 3]
    assert 3 * 3 <= user.runs("repro.py") <= 3 * (1 + 3)
    assert "0.75  +0.25  different" in said
    assert "loss: 3 runs of each; load" in said


@pytest.mark.thorough
def test_what_is_worse_is_red(user: User) -> None:
    """With --worse and without; what is better, or differs by less, is not."""
    user.script("repro.py", PRINTS_LOSS)
    asked = ("matrix", "repro.py", "--torch", "9.2.0,9.3.0", "--measure", "loss")
    assert "+50 %  worse" in given(user, *asked, code=1)
    assert "+50 %  worse" in given(user, *asked, "--worse", "10%", code=1)
    given(user, *asked, "--worse", "80%")
    assert "+50 %  better" in given(user, *asked, "--worse", "-10%")


@pytest.mark.thorough
def test_each_environment_is_measured_with_its_own_config(user: User) -> None:
    """No run uses the variables of the reference's config."""
    (user.folder / "whichtorch.toml").write_text('[config.more]\nenv = { LEVEL = "3" }\n')
    user.script("repro.py", "NOTE\nimport os\nimport torch\nprint('level=' + os.environ.get('LEVEL', '1'))\n")
    asked = ("matrix", "repro.py", "--torch", "9.1.0,9.2.0", "--config", "default,more", "--measure", "level")
    given(user, *asked, "--json", "answer.json", code=1)
    configs = {each["id"]: each["config"] for each in written(user)["environments"]}
    shown = [(configs[cell["environment"]], cell["numbers"][0]["value"]) for cell in written(user)["cells"]]
    assert sorted(shown) == [("default", 1), ("default", 1), ("more", 3), ("more", 3)]


@pytest.mark.thorough
def test_each_test_of_a_matrix_has_its_own_numbers(user: User) -> None:
    """One that prints none does not end the others: its rows have the reason."""
    user.script("first.py", "import torch\nprint('accuracy=1')\n")
    user.script("second.py", PRINTS_LOSS)
    user.script("third.py", PRINTS_LOSS)
    asked = ("matrix", "first.py", "second.py", "third.py", "--torch", "9.2.0,9.3.0", "--measure", "loss")
    said = given(user, *asked, "--json", "answer.json", code=1)
    assert [each["value"] for each in numbers(user)] == [0.5, 0.5, 0.75, 0.75]  # environment by environment
    assert said.count("\n9.2.0: it prints no loss\n9.3.0: it prints no loss\n") == 1


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["matrix", "bisect"])
def test_an_interrupt_leaves_nothing_behind(user: User, command: str) -> None:
    """The run that is made is stopped, and the command ends with its exit code; what never ended did not pass."""
    user.script("repro.py", PRINTS_LOSS + "import time\nwhile True: time.sleep(1)\n")
    started = user.start(command, "repro.py", "--torch", "9.2.0,9.3.0", "--measure", "wall", "--worse", "1%", *BUILD)
    wait_for(lambda: user.runs("repro.py") > 0)
    started.send_signal(signal.SIGINT)
    assert started.wait(PATIENCE) == 130
    wait_for(lambda: not alive_in(user.folder))
    assert "Traceback" not in (user.folder / "output.txt").read_text()
    assert not [path for path in user.folder.rglob("cells.jsonl") if path.stat().st_size]


@pytest.mark.thorough
def test_bisect_finds_the_release_that_changed_a_number(user: User) -> None:
    """In comparisons of three rounds, with the two neighbors compared in runs of their own."""
    user.script("repro.py", PRINTS_LOSS)
    asked = ("bisect", "repro.py", "--torch", "<=9.5.0", "--measure", "loss", "--worse", "+-1e-4")
    said = given(user, *asked, "--json", "answer.json")
    answer = written(user)
    assert [(each["before"], each["after"], each["effect"]) for each in answer["curve"]["steps"]] == [
        ("9.2.0", "9.3.0", "different")
    ]
    assert (answer["curve"]["total"], answer["curve"]["threshold"]) == ([0.25] * 3, 1e-4)
    assert [(each["from"], each["to"]) for each in answer["boundaries"]] == [("9.2.0", "9.3.0")]
    assert set(answer["curve"]["values"]) <= set(LOSS)
    assert "loss is different in 9.3.0: +0.25 against 9.2.0" in said
    assert user.runs("repro.py") <= 4 * 2 * 3 + 4  # four comparisons, and a run that warms up each of the releases


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (("--good", "9.2.0", "--bad", "9.4.0"), [("9.2.0", "9.3.0", "worse")]),
        (("--good", "9.4.0", "--bad", "9.1.0", "--worse", "-5%"), [("9.2.0", "9.3.0", "better")]),
        (("--good", "9.3.0", "--bad", "9.5.0"), []),
        (("--torch", "<=9.5.0", "--good", "9.1.0"), [("9.2.0", "9.3.0", "worse")]),
        (("--torch", "<=9.5.0", "--bad", "9.4.0"), [("9.2.0", "9.3.0", "worse")]),
        (("--torch", "<=9.5.0", "--good", "9.3.0"), []),
        (("--torch", "<=9.5.0", "--worse", "-5%", "--find", "regression"), [("9.2.0", "9.3.0", "better")]),
        (("--torch", "<=9.5.0", "--worse", "-5%", "--find", "fix"), [("9.2.0", "9.3.0", "better")]),
    ],
)
def test_bisect_searches_between_its_bounds(
    user: User, options: tuple[str, ...], steps: list[tuple[str, str, str]]
) -> None:
    """The step is told from the older to the newer release, whichever of them is the good one."""
    user.script("repro.py", PRINTS_LOSS)
    given(user, "bisect", "repro.py", *options, "--measure", "loss", "--json", "answer.json")
    curve, boundaries = written(user)["curve"], written(user)["boundaries"]
    assert [(each["before"], each["after"], each["effect"]) for each in curve["steps"]] == steps
    assert len(boundaries) == (0 if "regression" in options else len(steps))  # what is not asked for is no answer


@pytest.mark.thorough
def test_bisect_without_a_change_blames_nobody(user: User) -> None:
    """The ends are compared, and the answer is that they are alike."""
    user.script("repro.py", "import torch\nprint('loss=1.5')\n")
    said = given(user, "bisect", "repro.py", "--torch", "<=9.5.0", "--measure", "loss", "--json", "answer.json")
    assert (written(user)["answer"], written(user)["boundaries"]) == ("none", [])
    assert "loss: +0 % from 9.1.0 to 9.5.0: less than 5 %" in said


@pytest.mark.thorough
def test_bisect_goes_around_releases_without_the_number(user: User) -> None:
    """One that cannot be imported, and one that does not print it, are no evidence."""
    user.script("repro.py", PRINTS_LOSS + "if torch.__version__ == '9.3.0': raise SystemExit(3)\n")
    asked = ("bisect", "repro.py", "--measure", "loss", "--worse", "+-1e-4", "--json", "answer.json")
    said = given(user, *asked)
    assert [(each["before"], each["after"]) for each in written(user)["curve"]["steps"]] == [("9.2.0", "9.4.0")]
    assert {"9.3.0", "9.6.0"} == set(written(user)["curve"]["missing"])
    assert "no evidence: 9.3.0: fail" in said


@pytest.mark.thorough
def test_two_searches_for_a_change_of_a_number_are_compared(user: User) -> None:
    """Each release has the number that it was compared by, so that the page, Markdown and `compare` have it, too."""
    user.script("repro.py", PRINTS_LOSS.replace("torch.behaviour", "float(torch.behaviour) * 2"))
    asked = ("bisect", "repro.py", "--torch", "<=9.5.0", "--measure", "loss", "--worse", "+-1e-4")
    given(user, *asked, "--json", "answer.json", "--markdown", "answer.md")
    first = written(user)
    shown = {probe["value"]: probe["cell"]["numbers"][0]["change"] for probe in first["probes"]}
    assert (shown["9.1.0"], shown["9.5.0"]) == (None, [0.5] * 3)
    assert "| 9.3.0 | 1.5 | +0.5 |" in (user.folder / "answer.md").read_text()
    user.script("repro.py", PRINTS_LOSS.replace("torch.behaviour", "float(torch.behaviour) * 4"))
    given(user, *asked, "--json", "answer.json")
    ended = user.run("compare", first["run"], written(user)["run"])
    assert f"loss is different than in {first['run']}: +0.5" in ended.stdout, ended.stdout
    ended = user.run("report", first["run"], "--html", "page")
    assert ended.returncode == 0, ended.stderr
    assert "loss of repro.py" in (user.folder / "page" / "index.html").read_text()


@pytest.mark.thorough
def test_explain_says_by_how_much_a_number_differs(user: User) -> None:
    """One sentence for each environment that is compared; the exit code is that of an answer."""
    user.script("repro.py", PRINTS_LOSS)
    asked = ("explain", "repro.py", "--torch", "9.1.0,9.2.0,9.3.0", "--measure", "loss", "--worse", "+-0.1")
    said = given(user, *asked)
    assert "loss of repro.py differs by less than 0.1 in torch-9.2.0-pypi and torch-9.1.0-pypi: +0" in said
    assert "loss of repro.py is different in torch-9.3.0-pypi: +0.25 against torch-9.1.0-pypi" in said


@pytest.mark.thorough
def test_outputs_are_compared(user: User) -> None:
    """The largest difference of all numbers that are printed."""
    user.script("repro.py", "import torch\nprint([1.0, float(torch.behaviour)], 'end')\n")
    asked = ("matrix", "repro.py", "--torch", "9.1.0,9.2.0,9.3.0", "--measure", "output", "--worse", "1e-3")
    given(user, *asked, "--json", "answer.json", code=1)
    assert [(each["value"], each["effect"]) for each in numbers(user)] == [(0, None), (0, "same"), (0.25, "different")]


@pytest.mark.thorough
def test_a_number_that_one_release_lacks_is_told(user: User) -> None:
    """Its row has the reason, and the others are compared."""
    user.script("repro.py", "import torch\nif torch.behaviour == '0.5': print('loss=1')\n")
    said = given(user, "matrix", "repro.py", "--torch", "9.1.0,9.2.0,9.3.0,9.6.0", "--measure", "loss", code=3)
    assert "9.3.0: it prints no loss" in said
    assert "9.6.0: " in said
    assert "+0 %" in said


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("print('accuracy=1')", "it prints no loss"),
        ("print('loss=nan')", "loss is nan"),
        ("print('loss=inf')", "loss is inf"),
        ("print('loss=0.5'); raise ValueError('no')", "fail: "),
    ],
)
def test_a_script_without_the_number_ends_with_one_line(user: User, source: str, reason: str) -> None:
    """Nothing could be measured, because: and no environment is blamed for it."""
    user.script("repro.py", f"import torch\n{source}\n")
    for asked in (("matrix", "repro.py", "--torch", "9.1.0,9.2.0"), ("bisect", "repro.py", "--torch", "<=9.2.0")):
        said = given(user, *asked, "--measure", "loss", code=2)
        assert "measured: " in said
        assert reason in said


@pytest.mark.thorough
def test_each_reason_names_a_release(user: User) -> None:
    """One release may fail otherwise than the others: with a patch, say, that does not apply to it."""
    user.script("repro.py", "import torch\nassert torch.__version__ != '9.2.0', 'no'\nprint('accuracy=1')\n")
    said = given(user, "bisect", "repro.py", "--torch", "9.1.0,9.2.0,9.3.0,9.4.0", "--measure", "loss", code=2)
    reason = 'fail: AssertionError "no" in <module> (repro.py:2) (9.2.0)'
    assert f"loss cannot be measured: it prints no loss (9.1.0 and 2 more); {reason}\n" in said


@pytest.mark.thorough
def test_the_last_of_two_numbers_counts(user: User) -> None:
    """A note below the table says so."""
    user.script("repro.py", "import torch\nprint('loss=9')\n" + PRINTS_LOSS)
    asked = ("matrix", "repro.py", "--torch", "9.1.0,9.3.0", "--measure", "loss", "--json", "answer.json")
    said = given(user, *asked, code=1)
    assert [each["value"] for each in numbers(user)] == [0.5, 0.75]
    assert said.count("note: it prints loss 2 times: the last one counts") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["matrix", "--measure", "loss", "--pattern", "loss ("], "--pattern 'loss (' is no regular expression"),
        (["matrix", "--measure", "loss", "--pattern", "loss"], "has 0 groups: put parentheses around the number"),
        (["matrix", "--measure", "cpu", "--worse", "0%"], "--worse 0%: write how large a change counts, as 10%"),
        (["bisect", "--measure", "cpu", "--worse=--1"], "--worse --1: write how large a change counts, as 10%"),
        (["matrix", "--measure", "cpu", "--worse", "1e400"], "--worse 1e400: write how large a change counts"),
        (["matrix", "--measure", "tokens/s", "--worse", "100%"], "--worse 100%: tokens/s cannot fall by so much"),
        (["matrix", "--measure", ","], "--measure names nothing"),
        (["matrix", "--measure", "--worse"], "--measure --worse: that is no name"),
        (["matrix", "--worse", "3%"], "--worse: there is no --measure"),
        (["explain", "--torch", "9.1.0,9.2.0", "--pattern", "a(b)"], "--pattern: there is no --measure"),
        (["matrix", "--measure", "output"], "--measure output needs --worse, the largest difference that is none"),
        (["matrix", "--measure", "cpu", "--executor", "local"], "--measure cannot go with --executor"),
        (["bisect", "--measure", "cpu", "--executor", "local"], "--executor cannot go with --measure"),
        (["bisect", "--measure", "cpu,wall"], "bisect searches for the change of one number: cpu or wall"),
        (["bisect", "--measure", "cpu", "--axis", "config"], "--measure searches releases, days or commits"),
        (["bisect", "--measure", "cpu", "--flaky"], "--flaky cannot go with --measure"),
        (["explain", "--measure", "cpu", "--torch", "9.1.0"], "a number is compared between environments"),
        (["explain", "--measure", "cpu", "--torch", "9.1.0,9.2.0", "--executor", "local"], "--measure goes with"),
    ],
)
def test_a_mistake_ends_with_one_clear_line(user: User, arguments: list[str], message: str) -> None:
    """Exit code 2, before anything is installed or run."""
    user.script("repro.py", PRINTS_LOSS)
    command, *options = arguments
    said = given(user, command, "repro.py", *options, code=2)
    assert message in " ".join(said.split())
    assert not user.runs("repro.py")
