"""The unit test that is written of a script."""

import subprocess
import sys
from pathlib import Path

import pytest

from whichtorch.model import Outcome
from whichtorch.suite.chain import Chain
from whichtorch.triage.unit_test import unit_test

FAILING = "import math\n\n\ndef half(x):\n    return x / 2\n\n\nassert math.isclose(half(1), {})\n"


def exit_code(tmp_path: Path, source: str) -> int:
    """Return how pytest ends with a test file."""
    file = tmp_path / "test_case.py"
    file.write_text(source)
    # -B: a file of the same size, written in the same second, would be taken for the one before
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(file)]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode


@pytest.mark.parametrize(("value", "code"), [("0.5", 0), ("0.25", 1)])
@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.CRASH])
def test_it_fails_where_the_script_fails(tmp_path: Path, value: str, code: int, outcome: Outcome) -> None:
    """It does so in the test's own process, and in one of its own for what would take the test with it."""
    test = unit_test(FAILING.format(value), "half of 1", outcome, 10, ("operator", "a kernel"))
    assert exit_code(tmp_path, test.pytest) == code
    assert "def test_half_of_1()" in test.pytest


def test_a_hang_fails_by_its_timeout(tmp_path: Path) -> None:
    """The script is ended after its limit, and what it quotes arrives as it was."""
    source = 'import time\n\ntext = """a "quoted" \\\\ word"""\nassert len(text) == 17\ntime.sleep({})\n'
    for seconds, code in ((0, 0), (60, 1)):
        test = unit_test(source.format(seconds), "hang", Outcome.HANG, 2, ("hang", ""))
        assert exit_code(tmp_path, test.pytest) == code


def test_a_chain_fails_in_its_later_run(tmp_path: Path) -> None:
    """The test makes all runs, with caches that are empty at first; each has its own value of a variable."""
    source = (
        "import os, pathlib\nfound = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'], 'entry')\n"
        "assert not found.exists() or os.environ['LEVEL'] == '{}'\nfound.touch()\n"
    )
    chain = Chain(runs=2, varied={"LEVEL": ("1", "2")})
    for level, code in ((2, 0), (1, 1)):
        test = unit_test(source.format(level), "stale", Outcome.FAIL, 5, ("operator", ""), chain)
        assert exit_code(tmp_path, test.pytest) == code


def test_what_needs_a_module_of_its_own_is_run_as_a_script(tmp_path: Path) -> None:
    """`from x import *`, `global` and `__name__` mean something else within a function."""
    for line in ("from math import *", "global x", "print(__name__)"):
        test = unit_test(f"{line}\nx = 1\nassert x == 2\n", "case", Outcome.FAIL, 5, ("operator", ""))
        assert "subprocess.run" in test.pytest
        assert exit_code(tmp_path, test.pytest) == 1


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("inductor", "Inductor"), "test/inductor/test_torchinductor.py"),
        (("graph-break", "Dynamo"), "test/dynamo/test_repros.py"),
        (("meta-missing", "meta kernels"), "test/test_meta.py"),
        (("operator", "a kernel"), "test/test_torch.py"),
    ],
)
def test_the_form_of_pytorch_names_its_place(words: tuple[str, str], place: str) -> None:
    """The same statements stand in a TestCase, for the file that has tests of this kind."""
    test = unit_test(FAILING.format("1"), "a-case", Outcome.FAIL, 5, words)
    assert test.place == place
    assert "class TestACase(TestCase):\n    def test_a_case(self):" in test.test_case
    compile(test.test_case, "test.py", "exec")
