"""`whichtorch answer` on stand-in wheels, as a user gives it: each verdict, the comment, the sandbox, bad input."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import User, alive_in, no_torch
from tests.cli.test_bisect import releases
from tests.test_schema import validator
from tests.wheels import build_companion

pytestmark = pytest.mark.thorough

CHECKS = "import torch\nassert torch.behaviour == 'new', 'as it was'\n"
LIST = "### Versions\n\n```\nPyTorch version: {}\nPython version: 3.11.9\n```\n"
SAYS = "### Error logs\n\n```\nTraceback (most recent call last):\n  File 'x.py'\nAssertionError: as it was\n```\n\n"


wheels = pytest.fixture(no_torch)


def report(code: str = CHECKS, version: str = "9.1.0", says: str = SAYS) -> str:
    return f"It goes wrong.\n\n```python\n{code}```\n\n{says}{LIST.format(version)}"


def answer(user: User, text: str | bytes, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Give the command, check its exit code, and return its JSON with what it said under "said"."""
    (user.folder / "report.md").write_bytes(text.encode() if isinstance(text, str) else text)
    ended = user.run("answer", "report.md", "--json", "answer.json", "--comment", "answer.md", *arguments)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    written = user.folder / "answer.json"
    return (json.loads(written.read_text()) if written.exists() else {}) | {"said": ended.stdout + ended.stderr}


def test_what_was_fixed_since_is_told_with_its_boundary(user: User, wheels: Path) -> None:
    """The script runs in the claimed release and the newest one, and the change between is found."""
    releases(wheels, "ooonn")
    found = answer(user, report())
    validator("answer").validate({name: value for name, value in found.items() if name != "said"})

    assert (found["verdict"], found["run_version"], found["outcome"]) == ("fixed since", "9.1.0", "fail")
    assert found["newest"]["outcome"] == "pass"
    assert (found["boundary"]["bad"], found["boundary"]["good"]) == ("9.2.0", "9.3.0")
    assert found["script"] == CHECKS
    assert "script 1 of up to 1" in found["said"]
    assert "2 environments, 2 cells; installs about" in found["said"]
    assert "searching >=9.1.0,<=9.4.0, in about 3 more releases" in found["said"]
    comment = (user.folder / "answer.md").read_text()
    assert comment.startswith("**fixed since**: ")
    assert len(comment.partition("<details>")[0].splitlines()) <= 25


def test_what_came_later_and_is_still_there_reproduces(user: User, wheels: Path) -> None:
    """The release in which a failure came is found, too."""
    releases(wheels, "nnoo")
    found = answer(user, report(version="9.2.0"))

    assert found["verdict"] == "reproduces"
    assert (found["boundary"]["good"], found["boundary"]["bad"]) == ("9.1.0", "9.2.0")


def test_what_always_was_there_has_no_boundary(user: User, wheels: Path) -> None:
    """The oldest release decides that, without a search."""
    releases(wheels, "ooo")

    found = answer(user, report())
    assert (found["verdict"], found["boundary"]) == ("reproduces", None)


def test_another_failure_is_not_taken_for_the_reported_one(user: User, wheels: Path) -> None:
    """Exception and words decide, not that it fails."""
    releases(wheels, "on")

    found = answer(
        user, report(code="import torch\nassert torch.behaviour == 'new'\nraise KeyError('other')\n", version="9.1.0")
    )
    assert found["verdict"] == "another failure"
    assert "KeyError" in found["failure"]


def test_what_passes_does_not_reproduce(user: User, wheels: Path) -> None:
    """A script that passes in both releases shows nothing."""
    releases(wheels, "nn")

    assert answer(user, report())["verdict"] == "does not reproduce"


def test_a_nightly_is_stood_for_by_the_release_that_it_became(user: User, wheels: Path) -> None:
    """A report of a nightly is answered with the nearest release, and told."""
    releases(wheels, "onn")

    found = answer(user, report(version="9.0.0.dev20260101+cpu"))
    assert (found["verdict"], found["run_version"]) == ("fixed since", "9.0.0")
    assert any("9.0.0 stands for" in note for note in found["notes"])


def test_a_wrong_output_is_a_failure(user: User, wheels: Path) -> None:
    """What the report says is printed decides where the exit code is 0."""
    releases(wheels, "oon")
    code = "import torch\nprint('kind:', torch.behaviour)\n"

    found = answer(user, report(code=code, says="It prints `kind: old` instead of `kind: new`.\n\n"))
    assert (found["verdict"], found["outcome"]) == ("fixed since", "fail")
    assert (found["boundary"]["bad"], found["boundary"]["good"]) == ("9.1.0", "9.2.0")


def test_a_package_that_nobody_has_is_asked_for(user: User, wheels: Path) -> None:
    """Without the package nothing can be said of torch."""
    releases(wheels, "on")

    found = answer(user, report(code="import torch, no_such_package_at_all\n" + CHECKS, version="9.1.0"))
    assert found["verdict"] == "needs information"
    assert "no_such_package_at_all" in found["asks"]


def test_a_stranger_s_script_sees_no_home_no_token_and_no_network(user: User, wheels: Path) -> None:
    """The sandbox is on unless it is switched off."""
    releases(wheels, "nn")
    secret = Path(user.environ["HOME"]) / ".ssh" / "id_rsa"
    secret.parent.mkdir(parents=True)
    secret.write_text("private")
    code = (
        f"import os, socket, torch\ntorch.behaviour\nassert not os.path.exists({str(secret)!r}), 'home'\n"
        "assert 'MY_TOKEN' not in os.environ, 'token'\n"
        "try:\n    socket.create_connection(('203.0.113.7', 80), 2)\n"
        "except OSError:\n    pass\nelse:\n    assert 0, 'net'\n"
    )
    user.environ["MY_TOKEN"] = "secret"  # noqa: S105  no password

    assert answer(user, report(code=code))["verdict"] == "does not reproduce"
    assert answer(user, report(code=code), "--sandbox", "off")["failure"].startswith("AssertionError: home")


def test_the_time_limit_ends_it_with_what_is_known(user: User, wheels: Path) -> None:
    """Exit code 4, an answer that says so, and no process left."""
    releases(wheels, "on")
    found = answer(
        user, report(code="import torch, time\ntorch.behaviour\ntime.sleep(600)\n"), "--max-time", "5s", code=4
    )

    assert (found["verdict"], found["why"]) == ("not known", "the time limit was reached before the script had run")
    assert alive_in(user.folder / ".whichtorch") == []


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        pytest.param(b"", "needs information", id="empty"),
        pytest.param(b"It is slow.", "needs information", id="no code"),
        pytest.param(b"\x1b]0;title\x07\xe2\x80\xae no code", "needs information", id="controls"),
        pytest.param(b"```python\nimport torch\ntorch.ones(2, device='cuda')\n```", "needs hardware", id="GPU"),
        pytest.param(b"```python\nimport os\nos.system('curl x | sh')\n```", "refused as unsafe", id="attack"),
        pytest.param(b"```python\nx = 1\nprint(x)\n```\n\n" * 2000, "needs information", id="2000 blocks"),
    ],
)
def test_reports_of_which_nothing_is_run(user: User, content: bytes, verdict: str) -> None:
    """They are answered without an index."""
    assert answer(user, content)["verdict"] == verdict


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"\x7fELF\0\0", "the report is no text", id="binary"),
        pytest.param(b"x" * 10_000_000, "the report has 10.0 MB", id="10 MB"),
    ],
)
def test_what_is_no_report_is_told_in_a_line(user: User, content: bytes, words: str) -> None:
    """Exit code 2, and no traceback."""
    assert words in answer(user, content, code=2)["said"]


def test_a_report_that_is_not_there_is_told(user: User) -> None:
    """The path and the reason."""
    ended = user.run("answer", "missing.md")
    assert (ended.returncode, ended.stderr) == (
        2,
        "error: cannot read the report missing.md: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("newest", "words"),
    [
        ("nightly", "--newest nightly: no such release"),
        (">=9", "--newest >=9: no such release"),
        ("9.0.0", "--newest 9.0.0 is older than 9.1.0, which the report names"),
    ],
)
def test_a_newest_release_that_cannot_be_meant_is_told(user: User, wheels: Path, newest: str, words: str) -> None:
    """Exit code 2, and no traceback."""
    releases(wheels, "on")

    assert words in answer(user, report(), "--newest", newest, code=2)["said"]


def test_a_module_of_the_report_may_have_the_name_of_the_script(user: User, wheels: Path) -> None:
    """Both lie in one folder, and the script imports it."""
    releases(wheels, "on")
    text = f"```python\n# repro.py\nimport torch\ndef check():\n    {CHECKS.splitlines()[1]}\n```\n\n"
    text += f"Run:\n\n```python\nfrom repro import check\nimport torch\ncheck()\n```\n\n{SAYS}{LIST.format('9.0.0')}"

    assert answer(user, text)["verdict"] == "fixed since"


def companions(folder: Path, name: str, *versions: str) -> None:
    for version in versions:
        build_companion(folder, name, version)


VERSION_OF = """import torch
torch.behaviour
from importlib.metadata import version
assert version('numpy') != '2.1.0', 'as it was'
"""


def test_a_package_of_the_list_that_decides_is_taken_over(user: User, wheels: Path) -> None:
    """It passes with the newest one, fails with the listed one, and that is told."""
    releases(wheels, "nn")
    companions(wheels, "numpy", "2.1.0")

    found = answer(user, report(code=VERSION_OF, version="9.0.0\n[pip3] numpy==2.1.0\n[pip3] einops==0.7"))
    assert found["verdict"] == "reproduces", found["said"]
    assert "numpy==2.1.0" in found["packages"]
    assert "with numpy==2.1.0, as the report lists; with others it passes in 9.0.0" in found["notes"]


def test_what_was_fixed_since_is_found_with_the_packages_of_the_list(user: User, wheels: Path) -> None:
    """The releases between are searched with them."""
    releases(wheels, "oonn")
    companions(wheels, "numpy", "2.1.0")
    code = VERSION_OF.replace("assert", "assert torch.behaviour == 'new' or")

    found = answer(user, report(code=code, version="9.0.0\nnumpy    2.1.0"))
    assert (found["verdict"], found["boundary"]["bad"]) == ("fixed since", "9.1.0"), found["said"]


def test_what_torch_looks_for_is_installed_as_listed(user: User, wheels: Path) -> None:
    """Without it another path is taken."""
    releases(wheels, "nn")
    companions(wheels, "setuptools", "70.0.0", "79.0.1")
    code = VERSION_OF.replace("numpy", "setuptools").replace("2.1.0", "70.0.0").replace("assert", "try:\n    assert")
    code += "except ModuleNotFoundError:\n    pass\n"

    assert answer(user, report(code=code, version="9.0.0\nsetuptools==70.0.0"))["verdict"] == "reproduces"


def test_what_could_not_be_taken_over_denies_nothing(user: User, wheels: Path) -> None:
    """There is no such numpy: it is told, and the exit code says that nothing is known."""
    releases(wheels, "nn")

    found = answer(user, report(code=VERSION_OF, version="9.0.0\nnumpy==2.1.0"), code=4)
    assert (found["verdict"], found["differences"]) == (
        "not known",
        ["the report has numpy 2.1.0, this ran with 2.2.0"],
    )
    assert found["why"].endswith("; the report has numpy 2.1.0, this ran with 2.2.0")


def test_what_can_be_had_of_a_list_is_taken_over(user: User, wheels: Path) -> None:
    """One package that cannot be installed keeps no other one away."""
    releases(wheels, "nn")
    companions(wheels, "numpy", "2.1.0")
    companions(wheels, "setuptools", "79.0.1")

    found = answer(user, report(code=VERSION_OF, version="9.0.0\nsetuptools==70.0.0\nnumpy==2.1.0"))
    assert found["verdict"] == "reproduces", found["said"]


def test_a_variable_of_the_prose_is_set(user: User, wheels: Path) -> None:
    """Whatever its name is."""
    releases(wheels, "nn")
    code = "import os, torch\ntorch.behaviour\nassert 'MY_MODE' not in os.environ, 'as it was'\n"
    text = report(code=code) + "Run it with `MY_MODE=1` in the environment.\n"

    found = answer(user, text)
    assert (found["verdict"], found["variables"]) == ("reproduces", {"MY_MODE": "1"})


def test_a_variable_that_is_not_taken_over_denies_nothing(user: User, wheels: Path) -> None:
    """LD_PRELOAD would act outside of the sandbox, too."""
    releases(wheels, "nn")

    found = answer(user, report() + "```\n$ LD_PRELOAD=/x.so python repro.py\n```\n", code=4)
    assert "it ran without LD_PRELOAD=/x.so" in found["why"]
