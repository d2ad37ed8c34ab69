"""What a script needs beside itself."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from whichtorch.model import ProjectCommand, Scenario
from whichtorch.suite import companions
from whichtorch.suite.companions import copy_companions


def write(folder: Path, **files: str) -> Path:
    """Write modules, and return the script."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder / "script.py"


def test_modules_and_files_come_along(tmp_path: Path) -> None:
    """Modules beside the script, what those import, packages, and files named in texts, wherever the user is."""
    script = write(tmp_path / "code", script="import helper, os\nopen('data/rows.txt')\n", helper="from pack import x")
    write(tmp_path / "code" / "pack", __init__="from . import deep\nx = 1\n", deep="")
    (tmp_path / "user" / "data").mkdir(parents=True)
    (tmp_path / "user" / "data" / "rows.txt").write_text("1")
    found = companions.companions(script, tmp_path / "user")
    assert set(found) == {"helper.py", "pack/__init__.py", "pack/deep.py", "data/rows.txt"}
    copy_companions(found, tmp_path / "there")
    assert (tmp_path / "there" / "data" / "rows.txt").read_text() == "1"


def test_nothing_from_elsewhere_comes_along(tmp_path: Path) -> None:
    """Absolute paths and what lies outside of the two folders is left where it is; so is the script itself."""
    (tmp_path / "secret.txt").write_text("no")
    script = write(tmp_path / "code", script=f"a = '../secret.txt', {str(tmp_path / 'secret.txt')!r}, 'script.py', ''")
    assert companions.companions(script, tmp_path / "code") == {}


def test_modules_in_folders_without_init_are_found_by_name(tmp_path: Path) -> None:
    """With those that they import relatively; other files of such a folder, which may be data, do not count."""
    script = write(tmp_path, script="from data.read import rows\nimport tests.tools.deep")
    write(tmp_path / "data", read="from . import parse\nfrom .names import x", parse="", names="", other="")
    write(tmp_path / "tests", other="")
    write(tmp_path / "tests" / "tools", __init__="", deep="")
    expected = {"data/read.py", "data/parse.py", "data/names.py", "tests/tools/__init__.py", "tests/tools/deep.py"}
    assert set(companions.local_modules(script)) == set(companions.companions(script, tmp_path)) == expected


def test_a_large_package_is_walked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its modules import others of it by its name; all of its modules count."""
    script = write(tmp_path, script="import pack")
    write(tmp_path / "pack", __init__="", **{f"m{number}": "import pack.m1, pack.m2" for number in range(300)})
    walks: list[Path] = []
    rglob = Path.rglob

    def counted(path: Path, pattern: str) -> Iterator[Path]:
        walks.append(path)
        yield from rglob(path, pattern)

    monkeypatch.setattr(Path, "rglob", counted)
    assert len(companions.local_modules(script)) == 301
    assert walks == [tmp_path / "pack"]


def test_torch_does_not_come_along(tmp_path: Path) -> None:
    """A checkout of torch beside the script is not the script's: environments have a torch of their own."""
    script = write(tmp_path, script="import torch.nn\nimport helper", helper="from torch import nn")
    write(tmp_path / "torch", __init__="", nn="")
    assert set(companions.companions(script, tmp_path)) == {"helper.py"}
    assert set(companions.local_modules(script)) == {"helper.py"}


@pytest.mark.parametrize(
    ("name", "is_hiding"), [("torch.py", True), ("torch/__init__.py", True), ("torch/nn.py", False)]
)
def test_a_torch_beside_a_script_hides_that_of_its_environment(tmp_path: Path, name: str, *, is_hiding: bool) -> None:
    """Python looks beside the script first, but prefers an installed package to a folder without __init__.py."""
    script = write(tmp_path, script="import torch", plain="print('no')")
    (tmp_path / "torch").mkdir()
    (tmp_path / name).write_text("")
    link = tmp_path / "elsewhere" / "link.py"
    link.parent.mkdir()
    link.symlink_to(script)
    found = [
        companions.hiding_torch(Scenario(name="own", path=path, source_hash="hash", in_suite=False))
        for path in (script, link, tmp_path / "plain.py")
    ]
    assert found == [*[tmp_path / name if is_hiding else None] * 2, None]


@pytest.mark.parametrize(
    ("words", "is_hiding"),
    [
        ("python -m pytest test", True),
        ("env A=1 python3.12 -X dev -c 'import torch'", True),
        ("torchrun --nproc-per-node 2 script.py", True),
        ("pytest -x script.py::test_one", True),
        ("python -P -m pytest test", False),
        ("python -umpytest test", True),
        ("python -W error -uP -mpytest test", False),
        ("python test/script.py", False),
        ("pytest test", False),
        (f"bash -c '{'python x; ' * 100}python script.py'", False),
    ],
)
def test_a_torch_where_a_command_starts_may_hide_that_of_its_environment(
    tmp_path: Path, words: str, *, is_hiding: bool
) -> None:
    """With -m and -c, Python looks first where it is started; otherwise beside the script that the command names."""
    for folder in (tmp_path, tmp_path / "test"):
        write(folder, script="import torch")
    write(tmp_path / "torch", __init__="")
    command = ProjectCommand(words=tuple(shlex.split(words)), project="")
    scenario = Scenario(name="own", path=tmp_path, source_hash="hash", in_suite=False, command=command)
    assert companions.hiding_torch(scenario) == (tmp_path / "torch" / "__init__.py" if is_hiding else None)


def test_large_files_are_left_out(tmp_path: Path) -> None:
    """A case is sent to people: there is a limit to what comes along."""
    script = write(tmp_path / "code", script="a = 'small', 'large'")
    (tmp_path / "code" / "small").write_text("1234")
    (tmp_path / "code" / "large").write_text("123456")
    assert set(companions.companions(script, tmp_path, most_bytes=5)) == {"small"}


def test_a_script_in_a_sandbox_is_given_nothing_that_it_could_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's script names a file where the user is, or behind a link: neither comes along; its own files do."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    write(home, private="x = 1\n")
    (home / "secret.txt").write_text("no")
    texts = "import private, helper\nopen('secret.txt'); open('rows.txt')\n"
    script = write(home / "code", script=texts, helper="")
    (home / "code" / "private.py").symlink_to(home / "private.py")
    (home / "code" / "rows.txt").write_text("1")

    def found(path: Path, *, sandboxed: bool) -> set[str]:
        scenario = Scenario(name="script.py", path=path, source_hash="hash", in_suite=False, sandboxed=sandboxed)
        return set(companions.companions_of(scenario, home))

    assert found(script, sandboxed=False) == {"helper.py", "private.py", "rows.txt", "secret.txt"}
    assert found(script, sandboxed=True) == {"helper.py", "rows.txt"}
    assert found(write(home, script=texts), sandboxed=True) == set()
