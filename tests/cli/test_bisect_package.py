"""`whichtorch bisect --package` on stand-in wheels, as a user gives it, and which of two packages it was."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import User
from tests.wheels import build_companion, build_wheel

pytestmark = pytest.mark.thorough

FAILS_WITH_NEW_LIB = "import lib, torch\nassert lib.__version__ < '1.3', 'lib is too new'\n"

BUILDS_LIB = """import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    info = "lib-{version}.dist-info/"
    files = {{
        "lib/__init__.py": "__version__ = '{version}'",
        info + "METADATA": "Metadata-Version: 2.1\\nName: lib\\nVersion: {version}\\n",
        info + "WHEEL": "Wheel-Version: 1.0\\nGenerator: own\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    files[info + "RECORD"] = ",,\\n".join([*files, info + "RECORD", ""])
    with zipfile.ZipFile(folder + "/lib-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return "lib-{version}-py3-none-any.whl"
"""


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    for version in ("1.0", "1.1", "1.2", "1.3", "1.4", "2.0rc1"):
        build_companion(folder, "lib", version)
    for version in ("2.2.0", "2.3.0"):
        build_companion(folder, "numpy", version)
    build_wheel(folder, "9.1.0", requires=("lib==1.2",))
    build_wheel(folder, "9.2.0", requires=("lib==1.4",))
    build_wheel(folder, "9.3.0")
    return folder


def answered(user: User, *options: str, code: int = 0) -> dict[str, Any]:
    (user.folder / "repro.py").write_text(FAILS_WITH_NEW_LIB)
    ended = user.run("bisect", "repro.py", "--build", "pypi", "--json", "answer.json", *options)
    assert ended.returncode == code, ended.stdout + ended.stderr
    answer: dict[str, Any] = json.loads((user.folder / "answer.json").read_text())
    return answer | {"said": ended.stdout}


def refused(user: User, *options: str) -> str:
    (user.folder / "repro.py").write_text(FAILS_WITH_NEW_LIB)
    ended = user.run("bisect", "repro.py", "--build", "pypi", *options)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_the_release_of_a_package_is_found_with_one_torch(user: User) -> None:
    """All else stays as it is, and pre-releases are left out."""
    answer = answered(user, "--package", "lib", "--torch", "9.3.0")
    (boundary,) = answer["boundaries"]
    assert (boundary["from"], boundary["to"], boundary["change"]) == ("1.2", "1.3", "regression")
    assert answer["values"] == ["1.0", "1.1", "1.2", "1.3", "1.4"]
    assert boundary["packages"] == {}
    assert "broken in lib 1.3, by lib itself: last that passes 1.2, first that fails 1.3" in answer["said"]
    torches = {probe["environment"]["packages"]["torch"] for probe in answer["probes"]}
    assert torches == {"9.3.0"}


def test_limits_after_the_name_narrow_the_releases(user: User) -> None:
    """A named pre-release counts."""
    assert answered(user, "--package", "lib>=1.2,<1.4", "--torch", "9.3.0")["values"] == ["1.2", "1.3"]
    assert answered(user, "--package", "lib>=1.3,<=2.0rc1", "--torch", "9.3.0")["values"][-1] == "2.0rc1"


def test_tags_of_a_repository_are_releases(user: User, tmp_path: Path) -> None:
    """A package that no index has is searched by the tags that are versions."""
    checkout = tmp_path / "lib"
    checkout.mkdir()
    git = ("git", "-c", "user.name=me", "-c", "user.email=me@example.org")
    project = '[project]\nname = "lib"\nversion = "{}"\n[build-system]\nrequires = []\nbuild-backend = "own"\n'
    project += 'backend-path = ["."]\n'
    subprocess.run([*git, "init", "-q"], cwd=checkout, check=True)
    for version in ("1.2", "1.3"):
        (checkout / "pyproject.toml").write_text(project.format(version))
        (checkout / "own.py").write_text(BUILDS_LIB.format(version=version))
        subprocess.run([*git, "add", "."], cwd=checkout, check=True)
        subprocess.run([*git, "commit", "-qm", version], cwd=checkout, check=True)
        subprocess.run([*git, "tag", f"v{version}"], cwd=checkout, check=True)
    answer = answered(user, "--package", f"lib @ git+file://{checkout}", "--torch", "9.3.0")
    assert [(each["from"], each["to"]) for each in answer["boundaries"]] == [("1.2", "1.3")]


def test_a_torch_that_allows_only_one_release_is_told(user: User) -> None:
    """The others cannot be resolved, and the note names what keeps them away."""
    answer = answered(user, "--package", "lib", "--torch", "9.1.0", code=4)
    assert answer["answer"] == "inconclusive"
    told = (
        "torch 9.1.0 and the other requirements exclude releases of lib; --override 'lib>=1.0' tries them all the same"
    )
    assert told in answer["said"]
    found = answered(user, "--package", "lib", "--torch", "9.1.0", "--override", "lib>=1.0")
    assert [(each["from"], each["to"]) for each in found["boundaries"]] == [("1.2", "1.3")]


def test_releases_at_the_ends_that_do_not_fit_are_left_out_and_told(user: User, wheels: Path) -> None:
    """Nothing is installed to find where they end, and the first line of the answer does not claim them."""
    build_companion(wheels, "user", "1.0", requires=("lib>=1.1,<1.3",))
    answer = answered(user, "--package", "lib", "--torch", "9.3.0", "--with", "user")
    assert (answer["order"][:2], answer["installs"]) == (["1.1", "1.2"], 2)
    assert answer["unjudged"] == {"no environment can be made": ["1.0", "1.3", "1.4"]}
    assert [reason.partition(":")[0] for reason in answer["reasons"][:2]] == [
        "nothing before 1.1 was tried",
        "nothing after 1.2 was tried",
    ]
    assert "it passes in all 2 releases of lib that were tested, 1.1 to 1.2; no environment can be" in answer["said"]


def test_what_torch_excludes_is_not_searched(user: User, wheels: Path) -> None:
    """Few of many excluded releases are resolved; the answer is of the others, and names the way on."""
    for minor in range(30):
        build_companion(wheels, "lib", f"0.{minor}")
    build_wheel(wheels, "9.4.0", requires=("lib>=1.1,<1.3",))
    answer = answered(user, "--package", "lib<2", "--torch", "9.4.0")
    assert (answer["answer"], answer["values"], answer["order"]) == ("none", ["1.1", "1.2"], ["1.1", "1.2"])
    resolved = list((user.folder / ".whichtorch" / "cache" / "locks").iterdir())
    assert len(resolved) <= 11  # of 35 releases
    assert "no change was seen: it passes in all 2 releases of lib that were tested, 1.1 to 1.2" in answer["said"]
    assert "exclude releases of lib; --override 'lib>=0.0' tries them all the same" in answer["said"]
    assert "depends on lib>=1.1,<1.3" in answer["said"]
    assert "torch--" not in answer["said"]
    found = answered(user, "--package", "lib", "--torch", "9.4.0", "--override", "lib>=1.2")
    assert found["values"] == ["1.2", "1.3", "1.4"]
    assert [(each["from"], each["to"]) for each in found["boundaries"]] == [("1.2", "1.3")]


def test_releases_that_were_not_asked_for_are_told(user: User, wheels: Path) -> None:
    """Those of torch, or of the package: no release is blamed where another one may have made the change."""
    build_wheel(wheels, "9.4.0", requires=("lib==1.4",))
    found = answered(user, "--torch", "9.1.0,9.4.0")
    assert found["boundaries"][0]["unasked_between"] == ["9.2.0", "9.3.0"]
    who = "by lib 1.2 -> 1.4 that came with it"
    told = f"broken between 9.1.0 and 9.4.0, {who}; 9.2.0 and 9.3.0 were not asked for; confidence"
    assert told in found["said"]
    found = answered(user, "--package", "lib!=1.3", "--torch", "9.3.0")
    assert "broken between 1.2 and 1.4, by lib itself; 1.3 was not asked for; confidence" in found["said"]
    assert "asked for" not in answered(user, "--package", "lib>=1.1", "--torch", "9.3.0")["said"]


LOADS = (
    "import torch\nif torch.__version__ != {torch!r}:\n    raise RuntimeError('operator vision::nms does not exist')\n"
)
TENSORS, IO = "vision/transforms/tensors.py", "vision/io.py"


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("import vision.transforms.tensors\n", {TENSORS: ""}),
        ("from vision.io import read_video\n", {IO: "read_video = 1\n"}),
        ("import vision.io\nvision.io.read_video\n", {IO: "read_video = 1\n"}),
    ],
    ids=["module", "name", "attribute"],
)
def test_a_part_that_is_missing_is_a_change_of_its_package(
    user: User, wheels: Path, source: str, files: dict[str, str]
) -> None:
    """Though neither release of it loads with the other torch, the answer names the package."""
    common = {"vision/transforms/__init__.py": "", IO: ""}
    for minor in range(1, 9):
        torch = f"9.{minor}.0"
        own = {"vision/__init__.py": LOADS.format(torch=torch), **common, **(files if minor < 3 else {})}
        build_companion(wheels, "vision", f"0.{minor}", requires=(f"torch=={torch}",), files=own)
        build_wheel(wheels, torch)
    (user.folder / "lost.py").write_text(f"import torch\n{source}")
    ended = user.run("bisect", "lost.py", "--build", "pypi", "--with", "vision")
    assert "broken in 9.3.0, by vision 0.2 -> 0.3 that came with it: last that passes 9.2.0" in ended.stdout, (
        ended.stdout
    )
    after = ended.stdout.partition("broken in")[2].splitlines()
    assert [line for line in after if "--with vision" in line and "whichtorch fix" not in line] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--package", "nolib"), "has no nolib for Python 3.11"),
        (("--package", "lib>=7"), "no release of lib is >=7; the newest are 1.3, 1.4, 2.0rc1"),
        (("--package", "lib==1.2"), "only lib 1.2"),
        (("--package", "lib=="), "--package lib==: not a package"),
        (("--package", "torch"), "the releases of torch are searched without it"),
        (("--package", "lib", "--axis", "python"), "--axis and --package select different searches"),
        (("--package", "lib", "--torch", ">=9.1"), "--torch names 3 versions"),
        (("--package", "lib", "--good", "newest"), "'newest' is no version"),
        (("--package", "lib @ file:///none"), "not a repository"),
    ],
)
def test_what_cannot_be_searched_is_one_clear_line(user: User, options: tuple[str, ...], said: str) -> None:
    """Nothing is run."""
    assert said in refused(user, *options)
    assert not user.records()


def test_what_came_with_torch_is_told_from_torch(user: User) -> None:
    """The pins of each torch are not in the way of a mixture."""
    found = answered(user, "--torch", "9.1.0,9.2.0")
    (boundary,) = found["boundaries"]
    assert (boundary["attribution"]["cause"], boundary["attribution"]["changes"]) == ("companion", ["lib 1.2 -> 1.4"])
    assert "broken in 9.2.0, by lib 1.2 -> 1.4 that came with it: last that passes 9.1.0" in found["said"]


def test_a_budget_that_ends_before_the_mixtures_leaves_the_boundary(newcomer: User) -> None:
    """The note says that it was not told apart; the same command without the limit goes on."""
    limited = answered(newcomer, "--torch", "9.1.0,9.2.0", "--max-installs", "2")
    assert [(each["from"], each["attribution"]) for each in limited["boundaries"]] == [("9.1.0", None)]
    assert (
        "the limit of 2 installs is reached; whether torch or another package caused the change was not tested"
        in limited["said"]
    )
    assert answered(newcomer, "--torch", "9.1.0,9.2.0")["boundaries"][0]["attribution"]["cause"] == "companion"
