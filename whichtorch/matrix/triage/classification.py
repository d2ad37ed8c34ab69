"""What is known of a failure -> what kind it is, where to look, and by which evidence."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.traceback_chain import read_chain
from whichtorch.matrix.model import Outcome
from whichtorch.matrix.triage.case import Classification
from whichtorch.matrix.triage.categories import CATEGORIES, COMPILING, is_tracing
from whichtorch.matrix.triage.ladder import first_failing
from whichtorch.matrix.triage.signs import Owner, Signs, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from whichtorch.matrix.triage.case import Case
    from whichtorch.matrix.triage.categories import Category

UNCLASSIFIED = "unclassified"


def signs_of(case: Case, script: Path) -> Signs:
    """Return what a case says of its failure."""
    seen = case.reproduction
    assert seen is not None
    chain, tree = read_chain(seen.stderr) if seen.outcome is Outcome.FAIL else (), _parsed(script)
    return Signs(
        outcome=seen.outcome,
        signal=seen.signal,
        chain=chain,
        message=seen.message,
        signature=seen.signature,
        calls=case.calls,
        rungs=case.ladder.rungs if case.ladder else (),
        graph_breaks=case.ladder.graph_breaks if case.ladder else 0,
        recompilations=case.ladder.recompilations if case.ladder else 0,
        guilty=case.ladder.guilty if case.ladder else "",
        uses_meta=any(isinstance(node, ast.Constant) and node.value == "meta" for node in ast.walk(tree)),
        checks_backend=bool(chain and chain[-1].frames) and checks_backend(tree, chain[-1].frames[0].line),
        hang_kind=seen.hang_kind,
    )


def classify(signs: Signs) -> Classification:
    """Return the first category whose rule applies; where none does, say which is the nearest."""
    found = next((category for category in CATEGORIES if category.applies(signs)), None)
    layer = first_failing(signs.rungs)
    nearest = None if found else _nearest(signs)
    return Classification(
        category=found.name if found else UNCLASSIFIED,
        words=found.words if found else "no rule applies",
        layer=_layer(found, layer, signs) if found else layer,
        mode=_mode(signs),
        stage=_stage(signs),
        evidence=tuple(_evidence(signs, layer)),
        nearest=nearest.name if nearest else "",
    )


def _layer(category: Category, climbed: str, signs: Signs) -> str:
    """Return where to look: what the ladder shows counts more than what the category stands for."""
    if climbed and climbed != "eager" and category.name in {"accuracy", "hang", "compile-hang", "compiled-crash"}:
        return climbed
    return category.layer or climbed or (str(signs.innermost) if signs.innermost else "")


def _mode(signs: Signs) -> str:
    """Return how the code that failed was run."""
    if signs.is_same_eagerly:
        return "eager"
    if signs.exports and (Owner.EXPORT in signs.owners or not signs.compiles):
        return f"torch.export ({'strict' if _is_strict(signs) else 'non-strict'})"
    return "torch.compile"


def _is_strict(signs: Signs) -> bool:
    """Return whether export read the module's code with Dynamo."""
    asked = [call.strict for call in signs.calls if call.call == "export" and call.strict is not None]
    return asked[-1] if asked else is_tracing(signs)


def _stage(signs: Signs) -> str:
    if signs.is_same_eagerly or signs.outcome is not Outcome.FAIL:
        return ""
    if is_tracing(signs) or signs.names & COMPILING:
        return "while compiling"
    # what is generated is loaded by the compiler, too
    compilers = {Owner.DYNAMO, Owner.INDUCTOR, Owner.AOT, Owner.EXPORT}
    is_compiling = Owner.GENERATED not in signs.owners and signs.innermost in compilers
    return "while compiling" if is_compiling else "while running"


def _evidence(signs: Signs, layer: str) -> Iterator[str]:
    """Yield in words what speaks for the answer."""
    if signs.signal:
        yield f"ended by {signs.signal}"
    for link in signs.chain:
        place = next((f"{frame.function} of {owner_of(frame)}" for frame in link.frames), "")
        yield f"{link.name}" + (f", raised in {place}" if place else "")
    if layer:
        yield f"it shows first at the layer {layer}"
    if signs.guilty:
        yield f"of that layer, it needs {signs.guilty}"
    own = [call.backend for call in signs.calls if call.own]
    if own:
        yield f"the backend {own[0]} is the script's own and was never replaced"


def _nearest(signs: Signs) -> Category | None:
    """Return the category whose layer is that of the code that raised."""
    return next((category for category in CATEGORIES if category.layer and category.layer == signs.innermost), None)


def _parsed(script: Path) -> ast.Module:
    """Return the tree of a script, an empty one where it cannot be read."""
    try:
        return ast.parse(script.read_bytes())
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
