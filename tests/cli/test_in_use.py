"""Two tools and one environment: what one of them does to it, the scripts of the other do not see."""

from pathlib import Path
from typing import Any, cast

import pytest

from tests.cli.shell import User, wait_for
from tests.wheels import behaviour_patch, build_pytest

LATE = (
    "NOTE\nimport pathlib, time, torch\nwhile not pathlib.Path({go!r}).exists():\n    time.sleep(0.02)\nimport numpy\n"
)
VERSION = "pathlib.Path(torch.__file__).with_name('version.py')"
WAYS = {
    "written": f"{VERSION}.write_text({VERSION}.read_text())\n",
    "gone for a while": f"text = {VERSION}.read_text()\n{VERSION}.unlink()\n{VERSION}.write_text(text)\n",
    "installed anew": f"for record in {VERSION}.parent.parent.glob('torch-*.dist-info/RECORD'):\n"
    "    text = record.read_text()\n    record.unlink()\n    record.write_text(text)\n",
}


def attempts(user: User) -> list[dict[str, Any]]:
    """Return what is on record of each attempt."""
    return [cast(dict[str, Any], record["attempt"]) for record in user.records()]


def environments(user: User) -> dict[str, tuple[int, int]]:
    """Return which environments a user has, and which packages are in them."""
    envs = user.folder / ".whichtorch" / "envs"
    paths = [*envs.glob("*/venv"), *envs.glob("*/venv/lib/python*/site-packages/*.dist-info/RECORD")]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns if path.is_file() else 0) for path in paths}


@pytest.mark.thorough
@pytest.mark.parametrize("options", ["", "--fresh", "--patch fix.diff", "--config single-thread", "--disk 1MB"])
def test_a_second_tool_by_another_path(user: User, options: str) -> None:
    """While a script runs, a second tool uses the same state folder by a link; the environment stays as it is."""
    (user.folder / "fix.diff").write_text(behaviour_patch("new", "newer"))
    link, go = user.folder / "link", user.folder / "go"
    link.symlink_to(".whichtorch")
    user.script("late.py", LATE.format(go=str(go)))
    user.script("quick.py", "import torch\n")
    with user.start("matrix", "--torch", "9.2.0", "late.py", "--timeout", "300") as first:
        wait_for(lambda: user.runs("late.py") == 1)
        before = environments(user)
        beside = ["matrix", "--torch", "9.2.0", "quick.py", *options.split()]
        ended = user.run(*beside, environ={"WHICHTORCH_HOME": str(link)})
        after = environments(user)
        go.touch()
        assert first.wait() == 0, (user.folder / "output.txt").read_text()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert before.items() <= after.items()
    assert [attempt["outcome"] for attempt in attempts(user)] == ["pass", "pass"]


@pytest.mark.parametrize("way", WAYS)
def test_an_environment_that_changed_is_no_evidence(user: User, way: str) -> None:
    """What failed while its environment was changed is run again, once, and then counts."""
    change = "".join(f"    {line}\n" for line in WAYS[way].splitlines())
    first = "sum(1 for _ in open(__file__ + '.runs')) == 1"
    user.script("s.py", f"NOTE\nimport os, pathlib, torch\nif {first}:\n{change}    raise OSError('gone')\n")
    ended = user.run("matrix", "--torch", "9.2.0", "s.py", "--cold")
    (attempt,) = attempts(user)
    assert (ended.returncode, attempt["outcome"], user.runs("s.py")) == (0, "pass", 2), ended.stdout
    assert attempt["note"].startswith("run again, because its environment was changed while it ran: ")


@pytest.mark.parametrize("ending", ["raise OSError('gone')", "os.abort()", "raise SystemExit(125)"])
def test_an_environment_that_changes_each_time_is_an_error(user: User, ending: str) -> None:
    """What is run again and sees its environment change again is an error of the machine, not of torch."""
    user.script("s.py", f"NOTE\nimport os, pathlib, torch\n{WAYS['written']}{ending}\n")
    ended = user.run("matrix", "--torch", "9.2.0", "s.py", "--cold")
    (attempt,) = attempts(user)
    assert (attempt["outcome"], user.runs("s.py")) == ("error", 2), ended.stdout
    assert attempt["note"].startswith("its environment was changed while it ran: ")
    assert "torch/version.py" in attempt["note"]
    assert "FAIL" not in ended.stdout


@pytest.mark.thorough
def test_tests_of_a_session_whose_environment_changed_are_no_evidence(user: User, wheels: Path) -> None:
    """Of a command's pytest that runs while its environment is changed, no test has an outcome."""
    build_pytest(wheels)
    (user.folder / "test_it.py").write_text(
        "def test_passes():\n    pass\n"
        f"def test_changes():\n    import pathlib, torch\n    {VERSION}.write_text({VERSION}.read_text())\n"
        "    assert not 'changed'\n"
    )
    ended = user.run("matrix", "--torch", "9.2.0", "--with", "pytest", "--", "pytest", "test_it.py")
    assert {attempt["outcome"] for attempt in attempts(user)} == {"error"}, ended.stdout
    assert "FAIL" not in ended.stdout
