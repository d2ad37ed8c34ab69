"""How many things there are, and which versions a specifier holds."""

import pytest

from whichtorch.base.grouping import counted
from whichtorch.base.version_parsing import in_specifier


@pytest.mark.parametrize(("number", "words"), [(0, "0 cells"), (1, "1 cell"), (2, "2 cells"), (1234, "1234 cells")])
def test_a_number_of_things(number: int, words: str) -> None:
    """A noun is in the plural unless there is one of it."""
    assert counted(number, "cell") == words
    assert counted(2, "doubted pass") == "2 doubted passes"


@pytest.mark.parametrize(
    ("version", "specifier", "as_pre_release", "as_final"),
    [
        ("2.11.0", "<2.12", True, True),
        ("2.12.0rc1", "<2.12", False, False),
        ("2.12.0rc1", ">=2.12", False, True),
        ("2.12.0rc1", ">=2.12.0rc1", True, True),
        ("2.16.0.dev20261101+cpu", "==2.16", False, True),
        ("torch-2.11.0-py3-none-any.whl", ">=2", False, False),
        ("torch-2.11.0-py3-none-any.whl", "", True, True),
    ],
)
def test_pre_releases(version: str, specifier: str, as_pre_release: bool, as_final: bool) -> None:
    """A pre-release is before its release, unless it is to count as final; no specifier holds everything."""
    assert in_specifier(version, specifier, as_final=False) == as_pre_release
    assert in_specifier(version, specifier, as_final=True) == as_final
