"""What is known of a failure -> what kind it is, where to look, and by which evidence."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from matrix.diagnosis.traceback_chain import read_chain
from matrix.model import Outcome
from matrix.triage.case import Classification
from matrix.triage.categories import CATEGORIES, COMPILING, is_tracing
from matrix.triage.ladder import first_failing
from matrix.triage.signs import Owner, Signs, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matrix.triage.case import Case
    from matrix.triage.categories import Category

UNCLASSIFIED = "unclassified"


def signs_of(case: Case, script: Path) -> Signs:
    """Return what a case says of its failure."""
    seen = case.reproduction
    assert seen is not None
    return Signs(
        outcome=seen.outcome,
        signal=seen.signal,
        chain=read_chain(seen.stderr) if seen.outcome is Outcome.FAIL else (),
        message=seen.message,
        signature=seen.signature,
        calls=case.calls,
        rungs=case.ladder.rungs if case.ladder else (),
        graph_breaks=case.ladder.graph_breaks if case.ladder else 0,
        recompilations=case.ladder.recompilations if case.ladder else 0,
        guilty=case.ladder.guilty if case.ladder else "",
        uses_meta=_names_meta(script),
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


def _names_meta(script: Path) -> bool:
    """Return whether a script names the meta device."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return False
    return any(isinstance(node, ast.Constant) and node.value == "meta" for node in ast.walk(tree))
