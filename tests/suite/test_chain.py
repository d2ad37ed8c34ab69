"""What makes a variant a chain, and what can be none."""

from pathlib import Path

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.model import ProjectCommand, Scenario, name_of_test
from whichtorch.suite import selection
from whichtorch.suite.chain import Chain, chain_variant
from whichtorch.suite.headers import ScenarioError, read_scenario


@pytest.mark.parametrize(
    ("runs", "vary", "words"),
    [
        (None, ["threads"], "not NAME=A,B"),
        (2, ["threads=1"], "OMP_NUM_THREADS=1 has 1 values for 2 runs"),
        (3, ["A=1,2"], "A=1,2 has 2 values for 3 runs"),
        (1, ["A=1,2"], "A=1,2 has 2 values for 1 run"),
        (None, ["A=1"], "A=1: a single run has no caches"),
        (None, ["path=1,2"], "'path' is no variable"),
        (None, ["threads=1,x"], "OMP_NUM_THREADS=1,x: not numbers of threads"),
        (None, ["threads=1,0"], "OMP_NUM_THREADS=1,0: not numbers of threads"),
        (2, ["A=1,2", "A=3,4"], "A is named twice"),
        (2, ["TMPDIR=/a,/b"], "TMPDIR=/a,/b: all runs share the folder of TMPDIR"),
    ],
)
def test_options_that_make_no_chain(runs: int | None, vary: list[str], words: str) -> None:
    """Each is one line with the place."""
    with pytest.raises(UsageError, match=words):
        chain_variant(runs, vary)


def test_what_varies_says_how_many_runs_there_are() -> None:
    """Without --runs, a run for each value; one run is no chain."""
    assert chain_variant(None, ["threads=1,2,4"]) == {"runs": "3", "OMP_NUM_THREADS": "1,2,4"}
    assert chain_variant(None, []) == chain_variant(1, []) == {}


def test_a_chain_is_selected_by_its_name(tmp_path: Path) -> None:
    """The name that reports give is one that commands take, of any script; with one run it is the script itself."""
    script = tmp_path / "repro.py"
    script.write_text("print()")
    variant = {"runs": "2", "OMP_NUM_THREADS": "1,2", "written-by": "2.10.0"}
    narrowed = selection.script(name_of_test(str(script), variant))
    assert selection.variants_of(narrowed) == [variant]
    assert selection.variants_of(selection.script(f"{script}[runs=1]")) == [{}]
    assert selection.variant_environ(variant) == {}
    chain = Chain.of(variant)
    assert chain is not None
    assert (chain.variables(1), chain.variables(2)) == ({"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"})
    with pytest.raises(UsageError, match="not a number of runs"):
        selection.script(f"{script}[runs=0]")


def test_a_header_can_make_chains(tmp_path: Path) -> None:
    """`runs` and variables are variants with these names; options take their place."""
    script = tmp_path / "repro.py"
    script.write_text('# /// scenario\n# [variants]\n# runs = [2]\n# OMP_NUM_THREADS = ["2,1"]\n# op = ["mm"]\n# ///\n')
    scenario = read_scenario(script)
    own = {"runs": "2", "OMP_NUM_THREADS": "2,1", "op": "mm"}
    assert selection.variants_of(scenario) == [own]
    assert selection.variants_of(scenario, {"OMP_NUM_THREADS": "4,1"}) == [own | {"OMP_NUM_THREADS": "4,1"}]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("# runs = [0]", "runs=0: not a number of runs"),
        ('# runs = [1, 2]\n# OMP_NUM_THREADS = ["2,1"]', "has 2 values for 1 run"),
        ('# OMP_NUM_THREADS = ["2,1"]', "names are lower-case letters"),
    ],
)
def test_a_header_s_mistakes(tmp_path: Path, lines: str, message: str) -> None:
    """What can be no chain is a mistake of the header, with its line."""
    script = tmp_path / "repro.py"
    script.write_text(f"# /// scenario\n# [variants]\n{lines}\n# ///\n")
    with pytest.raises(ScenarioError, match=message):
        read_scenario(script)


def test_a_command_is_no_chain() -> None:
    """Its tests share a process, and its project a copy."""
    command = ProjectCommand(words=("pytest",), project="x")
    scenario = Scenario(name="-- pytest", path=Path(), source_hash="x", command=command)
    with pytest.raises(UsageError, match="only a script"):
        selection.variants_of(scenario, {"runs": "2"})
