"""What is known of a failure -> what kind it is, where to look, and by which evidence."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.missing_package import absence, missing_module
from whichtorch.matrix.diagnosis.tracebacks import read_chain
from whichtorch.matrix.model import Outcome
from whichtorch.matrix.source.code_owner import Component
from whichtorch.matrix.source.syntax import parse_module
from whichtorch.matrix.triage.case import Classification
from whichtorch.matrix.triage.categories import CATEGORIES, COMPILING, is_tracing
from whichtorch.matrix.triage.failure_facts import FailureFacts
from whichtorch.matrix.triage.ladder import first_failing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from whichtorch.matrix.triage.case import Case
    from whichtorch.matrix.triage.categories import Category

UNCLASSIFIED = "unclassified"


def facts_of(case: Case, script: Path) -> FailureFacts:
    """Return what a case says of its failure."""
    seen = case.reproduction
    assert seen is not None
    chain, tree = read_chain(seen.stderr) if seen.outcome is Outcome.FAIL else (), _parsed(script)
    return FailureFacts(
        failure=seen.failure,
        chain=chain,
        calls=case.calls,
        rungs=case.ladder.rungs if case.ladder else (),
        graph_breaks=case.ladder.graph_breaks if case.ladder else 0,
        recompilations=case.ladder.recompilations if case.ladder else 0,
        guilty=case.ladder.guilty if case.ladder else "",
        uses_meta=any(isinstance(node, ast.Constant) and node.value == "meta" for node in ast.walk(tree)),
        checks_backend=bool(chain and chain[-1].frames) and checks_backend(tree, chain[-1].frames[0].line),
    )


def classify(facts: FailureFacts) -> Classification:
    """Return the first category whose rule applies; where none does, say which is the nearest."""
    found = next((category for category in CATEGORIES if category.applies(facts)), None)
    layer, module = first_failing(facts.rungs), missing_module(facts.failure.signature, facts.failure.message)
    nearest = None if found else _nearest(facts)
    return Classification(
        category=found.name if found else UNCLASSIFIED,
        words=str(absence(module)) if module else found.words if found else "no rule applies",
        layer=_layer(found, layer, facts) if found else layer,
        mode=_mode(facts),
        stage=_stage(facts),
        evidence=tuple(_evidence(facts, layer)),
        nearest=nearest.name if nearest else "",
    )


def _layer(category: Category, climbed: str, facts: FailureFacts) -> str:
    """Return where to look: what the ladder shows counts more than what the category stands for."""
    if climbed and climbed != "eager" and category.name in {"accuracy", "hang", "compile-hang", "compiled-crash"}:
        return climbed
    return category.layer or climbed or (str(facts.innermost) if facts.innermost else "")


def _mode(facts: FailureFacts) -> str:
    """Return how the code that failed was run."""
    if facts.is_same_eagerly:
        return "eager"
    if facts.exports and (Component.EXPORT in facts.components or all(call.call == "export" for call in facts.calls)):
        return f"torch.export ({'strict' if _is_strict(facts) else 'non-strict'})"
    return "torch.compile"


def _is_strict(facts: FailureFacts) -> bool:
    """Return whether export read the module's code with Dynamo."""
    asked = [call.strict for call in facts.calls if call.call == "export" and call.strict is not None]
    return asked[-1] if asked else is_tracing(facts)


def _stage(facts: FailureFacts) -> str:
    if facts.is_same_eagerly or facts.failure.outcome is not Outcome.FAIL:
        return ""
    if is_tracing(facts) or facts.names & COMPILING:
        return "while compiling"
    # what is generated is loaded by the compiler, too
    compilers = {Component.DYNAMO, Component.INDUCTOR, Component.AOT, Component.EXPORT}
    is_compiling = Component.GENERATED not in facts.components and facts.innermost in compilers
    return "while compiling" if is_compiling else "while running"


def _evidence(facts: FailureFacts, layer: str) -> Iterator[str]:
    """Yield in words what speaks for the answer."""
    if facts.failure.signal:
        yield f"ended by {facts.failure.signal}"
    for link in facts.chain:
        place = next((f"{frame.function} of {frame.component}" for frame in link.frames), "")
        yield f"{link.name}" + (f", raised in {place}" if place else "")
    if layer:
        yield f"it shows first at the layer {layer}"
    if facts.guilty:
        yield f"of that layer, it needs {facts.guilty}"
    own = [call.backend for call in facts.calls if call.own]
    if own:
        yield f"the backend {own[0]} is the script's own and was never replaced"


def _nearest(facts: FailureFacts) -> Category | None:
    """Return the category whose layer is that of the code that raised."""
    return next((category for category in CATEGORIES if category.layer and category.layer == facts.innermost), None)


def _parsed(script: Path) -> ast.Module:
    """Return the tree of a script, an empty one where it cannot be read."""
    try:
        return parse_module(script.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def checks_backend(tree: ast.Module, line: int) -> bool:
    """Return whether the `assert` or `raise` at a line of a script depends on what a backend of the script's keeps.

    A backend is what a call gets as `backend`. What it keeps is itself, and the names that a function of its name
    has from elsewhere than its arguments.
    """
    backends = {
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "backend" and isinstance(node.value, ast.Name)
    }
    kept, read = set(backends), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in backends:
            kept |= _names(node) - {argument.arg for argument in node.args.args}
        if isinstance(node, ast.Assert | ast.Raise) and node.lineno <= line <= (node.end_lineno or node.lineno):
            read |= _names(node)
        if isinstance(node, ast.If) and any(isinstance(each, ast.Raise) and each.lineno == line for each in node.body):
            read |= _names(node.test)
    return bool(kept & read)


def _names(tree: ast.AST) -> set[str]:
    """Return the names that code reads or writes, but for those of Python and torch themselves."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names - set(dir(builtins)) - {"torch"}
