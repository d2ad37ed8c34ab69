"""Lock files: reading them, what two differ in, and what cannot be had alone."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from whichtorch.base.errors import UsageError
from whichtorch.bisect.axes.packages import PackageChange, combined, differences, read_lock, together

FREEZE = """\
# made by pip freeze
--index-url https://example.org/simple
Jinja2==3.1.4
numpy==2.2.6 \\
    --hash=sha256:0123 \\
    --hash=sha256:4567
torch @ https://example.org/torch-2.11.0-cp311-cp311-linux_x86_64.whl  # ours
typing_extensions===4.12.2
pywin32==306 ; sys_platform == 'win32'
"""
EDITABLE = "-e git+https://example.org/mine#egg=mine"


def lock(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "lock.txt"
    path.write_text(text)
    return path


def test_lock_file_is_read_as_pins(tmp_path: Path) -> None:
    """Names are normalised; comments, options, hashes and what is for another platform are left out."""
    assert read_lock(lock(tmp_path, FREEZE)) == {
        "jinja2": "==3.1.4",
        "numpy": "==2.2.6",
        "torch": "@ https://example.org/torch-2.11.0-cp311-cp311-linux_x86_64.whl",
        "typing-extensions": "==4.12.2",
    }


@pytest.mark.parametrize("comment", ["  # from C:\\wheels\\", "\t# \\"])
def test_a_comment_ends_its_line(tmp_path: Path, comment: str) -> None:
    """A backslash at the end of a comment joins no line to it."""
    assert read_lock(lock(tmp_path, f"numpy==2.2.6{comment}\nsympy==1.13\n")) == {"numpy": "==2.2.6", "sympy": "==1.13"}


def test_all_that_pins_nothing_is_told_with_its_line(tmp_path: Path) -> None:
    """A range, a bare name, a wildcard and an editable install are named together, each with its line."""
    path = lock(tmp_path, f"numpy>=2\n{EDITABLE}\nscipy\ntorch==2.*\nsympy==1.13\n")
    with pytest.raises(UsageError) as raised:
        read_lock(path)
    message = raised.value.message.replace(str(path), "lock.txt")
    assert message.splitlines() == [
        "lock.txt:1: 'numpy>=2' pins no version; write numpy==VERSION",
        f"lock.txt:2: {EDITABLE!r} is no requirement that another environment could be given",
        "lock.txt:3: 'scipy' pins no version; write scipy==VERSION",
        "lock.txt:4: 'torch==2.*' pins no version; write torch==VERSION",
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n\n"])
def test_a_lock_without_packages_is_a_mistake(tmp_path: Path, text: str) -> None:
    """An empty file is not taken for an empty environment."""
    with pytest.raises(UsageError, match="no package in it"):
        read_lock(lock(tmp_path, text))


GOOD = {"numpy": "==2.2.6", "sympy": "==1.13", "torch": "==2.11.0", "cublas": "==12.1", "pip": "==24.0"}
BAD = {"numpy": "==2.3.0", "sympy": "==1.13", "torch": "==2.12.0", "cublas": "==13.1", "triton": "==3.7", "pip": "==25"}


def test_differences_leave_out_what_installs_packages() -> None:
    """Other versions, additions and losses count; pip does not, and torch comes last."""
    assert [str(change) for change in differences(GOOD, BAD)] == [
        "cublas 12.1 -> 13.1",
        "numpy 2.2.6 -> 2.3.0",
        "triton none -> 3.7",
        "torch 2.11.0 -> 2.12.0",
    ]
    assert differences(GOOD, GOOD) == ()


def test_combined_lock_takes_some_differences_from_the_bad_one() -> None:
    """A change replaces, adds or removes a pin; a URL is written as one."""
    changes = {change.name: change for change in differences(GOOD, BAD)}
    assert combined(GOOD, [changes["numpy"], changes["triton"]]) == (
        "cublas==12.1",
        "numpy==2.3.0",
        "sympy==1.13",
        "torch==2.11.0",
        "triton==3.7",
    )
    gone = PackageChange(name="sympy", good="==1.13", bad=None)
    linked = PackageChange(name="torch", good="==2.11.0", bad="@ https://example.org/t.whl")
    assert combined({"sympy": "==1.13", "torch": "==2.11.0"}, [gone, linked]) == ("torch @ https://example.org/t.whl",)


def always(_: Requirement) -> bool:
    return True


def test_what_pins_each_other_goes_together() -> None:
    """Torch pins its libraries, so neither side of them can be had without the other's torch; numpy can."""
    needs = together(
        differences(GOOD, BAD),
        {"torch": ["cublas==12.1", "sympy>=1.13"]},
        {"torch": ["cublas==13.1", "triton==3.7; python_version >= '3.9'"]},
        always,
    )
    assert needs == {
        "cublas": {"cublas", "torch", "triton"},
        "numpy": {"numpy"},
        "torch": {"cublas", "torch", "triton"},
        "triton": {"triton"},
    }


def test_what_is_needed_is_followed_to_its_end() -> None:
    """A package that needs a newer one that needs a third takes both along; a marker that does not hold, nothing."""
    changes = [PackageChange(name=name, good="==1", bad="==2") for name in ("a", "b", "c", "d")]
    requires = {"a": ["b>=2"], "b": ["c>1", "d>1; extra == 'more'"]}
    needs = together(changes, {}, requires, lambda requirement: requirement.marker is None)
    assert needs["a"] == {"a", "b", "c"}
    assert needs["b"] == {"b", "c"}
    assert needs["c"] == {"c"}
