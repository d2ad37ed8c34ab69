"""What a word that names no test is, and what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichtorch.suite.mistyped import near_script, probably_meant

FILES = (
    "nb.ipynb",
    "run.sh",
    "notes",
    "pkg/__main__.py",
    "pkg/tool.py",
    "ok.py",
    "tests/test_x.py",
    "scripts/a.py",
    "report.md",
    "case.zip",
    "t.whl",
    "uv.lock",
    "my.toml",
    "requirements.txt",
    "venv/bin/python",
    "empty/nothing",
)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("nb.ipynb", "`--with nbclient --with ipykernel -- jupyter execute nb.ipynb`"),
        ("run.sh --fast", "`-- ./run.sh --fast`"),
        ("pkg/", "`-- python -m pkg`"),
        ("notes", "`-- python notes`"),
        ("tests", "`--with pytest -- pytest tests`"),
        ("scripts", "`scripts/*.py`"),
        ("empty", "`-- COMMAND`"),
        ("pytest tests/x.py -k half", "`-- pytest tests/x.py -k half`"),
        ("torchrun train.py", "`-- torchrun train.py`"),
        ("tests/test_x.py::test_half", "`-- pytest tests/test_x.py::test_half`"),
        ("2.15.0", "`--torch FIRST,2.15.0`"),
        ("torch==2.11.0", "`--torch 2.11.0`"),
        ("einops>=0.8", "`--with 'einops>=0.8'`"),
        ("https://github.com/pytorch/pytorch/issues/1", "`whichtorch answer report.md`"),
        ("report.md", "`whichtorch answer report.md`"),
        ("case.zip", "`whichtorch replay case.zip`"),
        ("t.whl", "`--torch t.whl`"),
        ("uv.lock", "`--constraint uv.lock`"),
        ("my.toml", "`--matrix my.toml`"),
        ("requirements.txt", "`-r requirements.txt`"),
        ("venv", "`--interpreter venv/bin/python`"),
        ("pkg.tool --size 4", "`-- python -m pkg.tool --size 4`"),
        ("ok", "`ok.py`"),
        ("ok.py", "`whichtorch matrix ok.py`"),
        ("1", "`whichtorch stacks 1`"),
        ("nothing-of-the-kind", ""),
    ],
)
def test_what_was_probably_meant(words: str, meant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It follows from what is there under that name, and from the form of the word."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    (tmp_path / "run.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert probably_meant(words.split())[1] == meant


def test_a_whole_command_in_quotes() -> None:
    """It is told apart from the name of a program."""
    assert probably_meant(["python x.py --size 4"]) == ("a whole command", "`-- python x.py --size 4`")


def test_a_script_that_is_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of that name in a folder below, or one with nearly that name."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "tool.py").touch()
    (tmp_path / "repro.py").touch()
    monkeypatch.chdir(tmp_path)
    assert (near_script("tool.py"), near_script("repr.py"), near_script("x.py")) == ("pkg/tool.py", "repro.py", "")
