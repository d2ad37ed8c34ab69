"""pyproject.toml and lock files -> what an environment needs beside torch."""

import tomllib
from pathlib import Path

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.environments.additions import Additions
from whichtorch.environments.script_needs import Needs, lock_pins, needs_of

PROJECT = """
[project]
name = "Tide.Pool"
requires-python = ">=3.11"
dependencies = ["torch>=2.1", "NumPy", "mylib"]
[project.optional-dependencies]
test = ["pytest>=8"]
all = ["tide-pool[test]", "rich"]
[dependency-groups]
Lint = ["ruff", {include-group = "types"}]
types = ["mypy", "tide_pool[all]"]
loop = [{include-group = "types"}, {include-group = "loop"}]
[tool.uv.sources]
torch = { index = "pytorch-cpu" }
mylib = { path = "../mylib", editable = true }
rich = { git = "https://example.org/rich", tag = "v1" }
ruff = { workspace = true }
"""


def project(folder: Path, text: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return str(folder)


def needs(**given: object) -> Needs:
    return needs_of(Additions(**given))  # type: ignore[arg-type]


def test_a_project_needs_its_dependencies_but_for_torch(tmp_path: Path) -> None:
    """Its requires-python counts as a script's does; a path that uv is told of is taken, and torch is told."""
    found = needs(project=project(tmp_path / "tide", PROJECT))
    assert found.requirements == (f"mylib @ {(tmp_path / 'mylib').as_uri()}", "numpy")
    assert (found.python, found.whose) == (">=3.11", "the project")
    assert found.notes == (
        f"{tmp_path}/tide/pyproject.toml: torch>=2.1 is left out: the matrix decides which torch is installed",
    )
    assert found.options == ("--project", str(tmp_path / "tide"))


def test_extras_and_groups_may_name_each_other(tmp_path: Path) -> None:
    """An extra of the project itself means that extra's requirements; a source that cannot be used is told."""
    folder = project(tmp_path / "tide", PROJECT)
    names = {text.partition(" ")[0] for text in needs(project=f"{folder}[Test]").requirements}
    assert names == {"mylib", "numpy", "pytest>=8"}
    found = needs(project=folder, groups=("lint",))
    assert "rich @ git+https://example.org/rich@v1" in found.requirements
    assert {"mypy", "pytest>=8", "ruff"} < set(found.requirements)
    assert f"{folder}/pyproject.toml: where [tool.uv.sources] has ruff from is left out" in found.notes
    assert found.options[-2:] == ("--group", "lint")


@pytest.mark.parametrize(
    ("text", "given", "told"),
    [
        ("[project]\nname = 'a'\ndynamic = ['dependencies']\n", {}, "only a build knows its dynamic dependencies"),
        (
            "[project]\nname = 'a'\ndynamic = ['dependencies']\n"
            "[tool.setuptools.dynamic]\ndependencies = {file = ['r.txt', 's.txt']}\n",
            {},
            "/tide/r.txt -r ",
        ),
        ("[tool.poetry]\nname = 'a'\n", {}, "has no [project] table; write what it needs into a file and name that"),
        ("[project]\nname = 'a'\ndependencies = 'torch'\n", {}, "project.dependencies: Input should be a valid tuple"),
        ("[project]\nname = 'a'\ndependencies = ['a b']\n", {}, "'a b' is not a requirement"),
        ("[project\n", {}, "pyproject.toml: Expected"),
        (PROJECT, {"groups": ("docs",)}, "has no dependency group 'docs'; it has lint, types, loop"),
        (PROJECT, {"groups": ("loop",)}, "while resolving loop: loop includes itself"),
    ],
)
def test_a_project_that_does_not_say_what_it_needs(
    tmp_path: Path, text: str, given: dict[str, object], told: str
) -> None:
    """It is told what is wrong, and what to give instead."""
    with pytest.raises(UsageError) as raised:
        needs(project=project(tmp_path / "tide", text), **given)
    assert told in raised.value.message


def test_other_mistakes_about_projects(tmp_path: Path) -> None:
    """An extra that there is not, a folder without a pyproject.toml, and groups without a project."""
    folder = project(tmp_path / "tide", PROJECT)
    for given, told in (
        ({"project": f"{folder}[docs]"}, "has no extra 'docs'; it has test, all"),
        ({"project": str(tmp_path)}, "pyproject.toml: No such file or directory; write what it needs into a file"),
        ({"groups": ("test",)}, "--group names groups of a project: add --project"),
        ({"files": (Path(folder, "pyproject.toml"),)}, "--constraint takes a lock file, --project a project"),
    ):
        with pytest.raises(UsageError) as raised:
            needs(**given)
        assert told in raised.value.message


UV_LOCK = """
version = 1
[[package]]
name = "tide"
source = { editable = "." }
[[package]]
name = "NumPy"
version = "2.2.6"
source = { registry = "https://pypi.org/simple" }
resolution-markers = ["python_full_version < '3.11'", "sys_platform == 'win32'"]
[[package]]
name = "numpy"
version = "2.3.0"
source = { registry = "https://pypi.org/simple" }
resolution-markers = ["python_full_version >= '3.11'"]
[[package]]
name = "mylib"
version = "1.0"
source = { git = "https://example.org/mylib?rev=v1#abc" }
[[package]]
name = "torch"
version = "2.11.0"
source = { registry = "https://pypi.org/simple" }
"""


def test_lock_files_become_constraints(tmp_path: Path) -> None:
    """What comes from an index counts, each version for its markers; torch and what is elsewhere are left out."""
    (tmp_path / "uv.lock").write_text(UV_LOCK)
    found = needs(constraints=(tmp_path / "uv.lock",))
    assert found.constraints == (
        'numpy==2.2.6; python_full_version < "3.11" or sys_platform == "win32"',
        'numpy==2.3.0; python_full_version >= "3.11"',
    )
    assert found.requirements == ()
    assert [note.removeprefix(f"{tmp_path}/") for note in found.notes] == [
        "uv.lock: mylib is left out: it comes from no index",
        "uv.lock: torch==2.11.0 is left out: the matrix decides which torch is installed",
    ]
    assert found.options == ("--constraint", str(tmp_path / "uv.lock"))


@pytest.mark.parametrize(
    "text",
    [
        # PEP 751
        "lock-version = '1.0'\n[[packages]]\nname = 'einops'\nversion = '0.8.0'\nmarker = \"os_name == 'posix'\"\n"
        "index = 'https://pypi.org/simple'\n[[packages]]\nname = 'tide'\ndirectory = {path = '.'}\n",
        # poetry
        "[[package]]\nname = 'einops'\nversion = '0.8.0'\nmarkers = ''\n[[package]]\nname = 'tide'\nversion = '1'\n"
        "[package.source]\ntype = 'directory'\nurl = '.'\n",
    ],
)
def test_lock_files_of_other_tools(text: str) -> None:
    """pylock.toml and poetry.lock pin in the same way."""
    pins, notes = lock_pins(Path("pylock.toml"), tomllib.loads(text))
    assert [pin.partition(" ")[0] for pin in pins] == ["einops==0.8.0"]
    assert notes == []


def test_files_of_constraints_are_read_as_pip_reads_them(tmp_path: Path) -> None:
    """Extras are of no account; a requirements file may name constraints; what needs one torch is left out."""
    (tmp_path / "c.txt").write_text("einops[all]<1\ntorchvision==0.26.0\ntorch==2.11.0\n")
    (tmp_path / "r.txt").write_text("-c c.txt\nrich\n")
    found = needs(files=(tmp_path / "r.txt",))
    assert (found.requirements, found.constraints) == (("rich",), ("einops<1",))
    assert any("torchvision==0.26.0 is left out: each release of it is for one torch" in note for note in found.notes)
    with pytest.raises(UsageError, match=r"cannot read the lock file .*gone.lock: No such file"):
        needs(constraints=(tmp_path / "gone.lock",))
    (tmp_path / "Pipfile.lock").write_text("{}")
    (tmp_path / "some.toml").write_text("a = 1\n")
    with pytest.raises(UsageError, match=r"(?s)cannot read the lock file .*Pipfile.lock: .*some.toml is no lock file"):
        needs(constraints=(tmp_path / "Pipfile.lock", tmp_path / "some.toml"))
