"""A script's own arguments, after `--`, in every command that runs one."""

import json
import shlex

import pytest

from tests.cli.shell import User
from tests.test_schema import validator

TAKES_SIZE = (
    "NOTE\nimport sys\nimport torch\nprint(sys.argv[1:])\n"
    "assert sys.argv[1:] != ['--size', '4'] or torch.behaviour == 'new', 'of four'\n"
)


@pytest.mark.thorough
def test_what_follows_the_dashes_is_the_scripts(user: User) -> None:
    """Options that look like ours, and spaces, reach the script and the command that reruns it."""
    (user.folder / "my scripts").mkdir()
    script = user.script("my scripts/repro.py", "NOTE\nimport sys\nraise SystemExit(repr(sys.argv[1:]))\n")
    own = ["--torch", "a b", "--executor", "tls://nowhere:1", "--", "last"]
    ended = user.run("matrix", "--torch", "9.2.0", script, "--json", "result.json", "--", *own)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    result = json.loads((user.folder / "result.json").read_text())
    validator().validate(result)
    (cell,), (scenario,) = result["cells"], result["scenarios"]
    assert cell["scenario"] == scenario["name"] == f"{script} -- {shlex.join(own)}"
    assert scenario["arguments"] == own
    assert repr(own) in (user.folder / ".whichtorch" / cell["attempts"][0]["stderr"]).read_text()
    (command,) = (line.rpartition("rerun: ")[2] for line in ended.stdout.splitlines() if "rerun: " in line)
    words = shlex.split(command)
    assert words[words.index("--") + 1 :] == own
    assert "--executor" not in words[: words.index("--")]
    user.run(*words[1:])
    assert user.runs(script) == 2
    first, second = user.records()
    assert first["key"] == second["key"]


@pytest.mark.thorough
def test_other_arguments_are_another_test(user: User) -> None:
    """Each set has its own records and its own row; the same again runs nothing, cold or forked."""
    script = user.script("repro.py", TAKES_SIZE)
    sizes = {size: ["matrix", "--torch", "9.1.0", script, "--", "--size", size] for size in ("4", "8")}
    assert [user.run(*words).returncode for words in sizes.values()] == [1, 0]
    assert user.run("matrix", "--torch", "9.1.0", script, "--cold").returncode == 0
    assert user.runs(script) == 3
    assert "all known" in user.run(*sizes["4"]).stdout
    assert user.runs(script) == 3
    told = user.run("history", script).stdout
    assert "repro.py -- --size 4" in told
    assert "repro.py -- --size 8" in told


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", [["bisect"], ["fix", "--bad", "9.1.0", "--good", "9.2.0"], ["triage", "--torch", "9.1.0"]]
)
def test_searches_run_the_script_with_its_arguments(user: User, words: list[str]) -> None:
    """Without these it passes everywhere; what they print to go on with has them."""
    script = user.script("repro.py", TAKES_SIZE)
    ended = user.run(words[0], script, *words[1:], "--json", "answer.json", "--", "--size", "4")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    answer = json.loads((user.folder / "answer.json").read_text())
    boundaries = {"bisect": answer, "triage": answer.get("bisection")}.get(words[0])
    if boundaries is not None:
        assert [(each["from"], each["to"]) for each in boundaries["boundaries"]] == [("9.1.0", "9.2.0")]
    if words[0] == "triage":
        assert answer["arguments"] == ["--size", "4"]
        archive = str(user.folder / "output" / "cases" / "repro" / "case.zip")
        assert user.run("replay", archive, "--whole").returncode == 0
    else:
        assert "-- --size 4" in (ended.stdout if words[0] == "fix" else answer["scenario"])


def test_explain_knows_the_test_with_its_arguments(user: User) -> None:
    """Its records are those with the same arguments, and the command that lets it run has its option before them."""
    script = user.script("repro.py", TAKES_SIZE)
    user.run("matrix", "--torch", "9.1.0", script, "--", "--size", "4")
    ended = user.run("explain", script, "--torch", "9.1.0", "--", "--size", "4")
    assert "repro.py -- --size 4" in ended.stdout, ended.stdout + ended.stderr
    assert "--run -- --size 4" in ended.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["matrix", "--torch", "9.2.0", "--", "--size", "4"], "--size is not a command"),
        (["matrix", "--torch", "9.2.0", "--"], "-- without a command"),
        (["bisect", "--"], "-- without a command"),
        (["bisect", "--", "--size", "4"], "--size is not a command"),
        (["bisect", "fake_tensor/add_meta", "--", "--size", "4"], "takes no arguments"),
    ],
)
def test_dashes_without_a_script_are_a_mistake(user: User, words: list[str], message: str) -> None:
    """There is nothing that the arguments could be given to."""
    user.script("repro.py", TAKES_SIZE)
    ended = user.run(*words)
    assert ended.returncode == 2
    assert message in ended.stderr
