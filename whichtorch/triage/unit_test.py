"""A test that fails where the script fails and passes where it passes: for pytest, and in the form of PyTorch's own.

What ends with an exception becomes the body of a test. What hangs or crashes would take the test's runner with it, so
its test runs the script in a process of its own. Each test is run to see it fail and pass where the script does.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.matrix.variation import Variation
from whichtorch.model import Outcome
from whichtorch.source.syntax import parse_module
from whichtorch.suite.chain import SHARED, Chain, without_chain
from whichtorch.triage.case import Case, ShownTest

if TYPE_CHECKING:
    from whichtorch.matrix.lab import Runner
    from whichtorch.triage.places import CaseTest, OtherReleases

# where PyTorch keeps tests of such failures; the first whose words a category or layer has
_PLACES = (
    ("export", "test/export/test_export.py"),
    ("dynamic-shapes", "test/test_dynamic_shapes.py"),
    ("Inductor", "test/inductor/test_torchinductor.py"),
    ("generated code", "test/inductor/test_torchinductor.py"),
    ("AOTAutograd", "test/functorch/test_aotdispatch.py"),
    ("decompositions", "test/test_decomp.py"),
    ("Dynamo", "test/dynamo/test_repros.py"),
    ("fake tensors", "test/test_fake_tensor.py"),
    ("meta kernels", "test/test_meta.py"),
    ("DataLoader", "test/test_dataloader.py"),
)
ELSEWHERE = "test/test_torch.py"
TEST_MARGIN = 2.0  # times the script's limit, for a test that runs it in a process of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTest:
    """The two forms of a test."""

    pytest: str
    test_case: str
    place: str  # of the second in PyTorch's tree


def unit_test(
    source: str, name: str, outcome: Outcome, limit: float, words: Sequence[str], chain: Chain | None = None
) -> UnitTest:
    """Return the tests of a script, or of a chain of runs of it.

    `words` are the category and the layer of its failure, `limit` is in seconds, for each run.
    """
    name = re.sub(r"\W+", "_", name).strip("_").lower() or "case"
    body = _as_body(source) if outcome is Outcome.FAIL and chain is None else None
    head, statements = body or (_as_chain(source, limit, chain) if chain else _as_process(source, limit))
    place = next((place for word, place in _PLACES if any(word in each for each in words)), ELSEWHERE)
    return UnitTest(pytest=_pytest(name, head, statements), test_case=_test_case(name, head, statements), place=place)


def _pytest(name: str, head: str, statements: str) -> str:
    return f"{head}\n\n\ndef test_{name}():\n{textwrap.indent(statements, '    ')}\n"


def _test_case(name: str, head: str, statements: str) -> str:
    title = "".join(part.capitalize() for part in name.split("_"))
    return (
        f"{head}\n\nfrom torch.testing._internal.common_utils import run_tests, TestCase\n\n\n"
        f"class Test{title}(TestCase):\n    def test_{name}(self):\n{textwrap.indent(statements, ' ' * 8)}\n\n\n"
        'if __name__ == "__main__":\n    run_tests()\n'
    )


def _as_body(source: str) -> tuple[str, str] | None:
    """Return a script's imports and its other statements; None where they cannot stand within a function."""
    try:
        tree = parse_module(source)
    except SyntaxError:
        return None
    if any(_needs_module(node) for node in ast.walk(tree)):
        return None
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    rest = [node for node in tree.body if node not in imports]
    return ("\n".join(map(ast.unparse, imports)), "\n".join(map(ast.unparse, rest))) if rest else None


def _needs_module(node: ast.AST) -> bool:
    """Return whether a statement means something else, or nothing, within a function."""
    if isinstance(node, ast.ImportFrom):
        return node.names[0].name == "*" or node.module == "__future__"
    return isinstance(node, ast.Global) or (isinstance(node, ast.Name) and node.id in {"__name__", "__file__"})


def _as_process(source: str, limit: float) -> tuple[str, str]:
    """Return a test that runs a script on its own, and wants it to end well within a limit."""
    head = f"import subprocess\nimport sys\n\n{_as_text(source)}"
    return head, f"subprocess.run([sys.executable, '-c', SCRIPT], check=True, timeout={limit:.0f})"


def _as_text(source: str) -> str:
    quoted = source.rstrip().replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return f'SCRIPT = """\\\n{quoted}\n"""'


def _as_chain(source: str, limit: float, chain: Chain) -> tuple[str, str]:
    """Return a test that runs a script several times, with compiler caches that are empty before the first run."""
    runs = ", ".join(str(chain.variables(run)) for run in range(1, chain.runs + 1))
    head = (
        f"import os\nimport subprocess\nimport sys\nimport tempfile\n\n{_as_text(source)}\n"
        f"RUNS = [{runs}]  # variables of each run\nSHARED = {SHARED}"
    )
    statements = (
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    shared = {name: tempfile.mkdtemp(dir=folder) for name in SHARED}\n"
        "    for variables in RUNS:\n"
        "        environ = {**os.environ, **shared, **variables}\n"
        f"        subprocess.run([sys.executable, '-c', SCRIPT], check=True, timeout={limit:.0f}, env=environ)"
    )
    return head, statements


def shown_test(case: Case, folder: Path, runs: Runner, other_releases: OtherReleases, test: CaseTest) -> ShownTest:
    """Write both forms of a test into a case's folder, and run it here and in the nearest healthy release.

    It is made from the script that found that release, because the smallest one may pass nowhere.
    """
    seen, found, healthy = case.reproduction, case.classification, case.healthy_release
    assert seen is not None
    assert found is not None
    source = (folder / (case.bisected if healthy else case.smallest)).read_text(encoding="utf-8")
    tests = unit_test(source, case.name, seen.outcome, seen.limit, (found.category, found.layer), case.chain)
    name = f"test_{Path(case.script).stem}.py"
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / name).write_text(tests.pytest, encoding="utf-8")
    (folder / "tests" / f"torch_{name}").write_text(tests.test_case, encoding="utf-8")
    shown = ShownTest(file=f"tests/{name}", test_case=f"tests/torch_{name}", place=tests.place)
    if _run(runs, tests.pytest, seen.limit) is Outcome.FAIL:
        shown = shown.model_copy(update={"fails_in": runs.environment.label})
    if healthy:
        with other_releases.runs(healthy, test) as there:
            if _run(there, tests.pytest, seen.limit) is Outcome.PASS:
                shown = shown.model_copy(update={"passes_in": there.environment.label})
    return shown


def _run(runs: Runner, source: str, limit: float) -> Outcome:
    """Return how the tests of a file end; they are called as pytest would, which need not be installed there."""
    count = runs.planned.runs
    if count > 1:  # the test makes its runs itself
        runs = replace(runs, planned=replace(runs.planned, variant=without_chain(runs.planned.variant)))
    called = "\nfor name, test in list(globals().items()):\n    if name.startswith('test_'):\n        test()\n"
    return runs.run(TEST_MARGIN * limit * count, Variation(source=source + called)).record.attempt.outcome
