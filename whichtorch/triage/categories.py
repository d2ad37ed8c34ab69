"""What kinds of failures there are: one table of rules, the first that applies counts.

The order is that of certainty: how the process ended, then the types of the exceptions, then whose code raised them,
then what the ladder shows. The words of a message decide only where releases raise one type for different things.

It is longer than other modules because the table and its rules are read together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from whichtorch.failures.failure import absence, missing_module
from whichtorch.model import Outcome
from whichtorch.process.evidence.waiting import HangKind
from whichtorch.source.code_owner import Component
from whichtorch.triage.case import Classification, FailureFacts
from whichtorch.triage.ladder import first_failing

HEALTHY = "healthy"
# raised only while something is compiled
COMPILING = frozenset(
    ["BackendCompilerFailed", "InductorError", "LoweringException", "TorchRuntimeError", "Unsupported", "UserError"]
)
_DATA_DEPENDENT = re.compile(r"data.dependent|dynamic control flow", re.IGNORECASE)
_CONSTRAINT = re.compile(r"constraints? violated|marked .* as dynamic but|not all values of", re.IGNORECASE)
_META_WORDS = re.compile(r"\bMeta\b(?:' backend| tensors?)|\bmeta\b.*(?:device|tensor)|(?:device|tensor).*\bmeta\b")
_OPERATOR_LACKS = re.compile(
    r"'Meta' backend|with Meta tensors|no (?:fake|meta|abstract) (?:impl|kernel)", re.IGNORECASE
)
_REMOVED = re.compile(r"is now removed|has been removed|config\.\w+ does not exist")
_ILLEGAL_ACCESS = re.compile(r"illegal memory access|device-side assert|unspecified launch failure")
_RECOMPILES = ("recompiles", "recompiles_verbose", "guards")

Rule = Callable[["FailureFacts"], bool]
UNCLASSIFIED = "unclassified"


@dataclass(frozen=True, slots=True)
class Category:
    """A kind of failure."""

    name: str
    words: str  # what it is, for a heading
    layer: str  # where to look: a part of torch, or "the script"; "" where only the ladder tells
    applies: Rule
    logs: tuple[str, ...] = ()  # artifacts of TORCH_LOGS that tell of it


def _ended(outcome: Outcome) -> Rule:
    return lambda facts: facts.failure.outcome is outcome


def _raised(*names: str) -> Rule:
    return lambda facts: bool(facts.names.intersection(names))


def _is_out_of_memory(facts: FailureFacts) -> bool:
    return facts.failure.outcome is Outcome.OOM or bool(facts.names & {"OutOfMemoryError", "MemoryError"})


def _is_triton(facts: FailureFacts) -> bool:
    is_compiling = bool(facts.names & {"CompilationError", "OutOfResources", "CompileTimeAssertionFailure"})
    return is_compiling and any("/triton/" in frame.file for frame in facts.frames)


def _is_missing_api(facts: FailureFacts) -> bool:
    """Return whether the script asks for something that was removed, or for a setting that this release lacks."""
    is_removed = facts.innermost is not Component.SCRIPT and bool(_REMOVED.search(facts.text))
    return not is_tracing(facts) and (facts.failure.is_missing_api or is_removed)


def _is_data_dependent(facts: FailureFacts) -> bool:
    symbolic = {"GuardOnDataDependentSymNode", "GuardOnDataDependentSymNodeError", "PendingUnbackedSymbolNotFound"}
    is_named = bool(facts.names & {"Unsupported", "UserError"}) and bool(_DATA_DEPENDENT.search(facts.text))
    return is_named or bool(facts.names & symbolic)


def _is_constraint(facts: FailureFacts) -> bool:
    is_named = "UserError" in facts.names and bool(_CONSTRAINT.search(facts.text))
    return is_named or "ConstraintViolationError" in facts.names


def is_tracing(facts: FailureFacts) -> bool:
    """Return whether Dynamo was reading code when it failed."""
    functions = {frame.function for frame in facts.frames}
    return any("convert_frame" in frame.file for frame in facts.frames) or "transform_code_object" in functions


def _is_backend(part: Component) -> Rule:
    """Return a rule: a compiler below Dynamo failed, and of its parts this was the last at work."""
    parts = (Component.INDUCTOR, Component.AOT)

    def applies(facts: FailureFacts) -> bool:
        last = next((each for each in facts.components if each in parts), None)
        wraps = bool(facts.names & {"BackendCompilerFailed", "InductorError", "LoweringException"})
        return last is part and (wraps or facts.backend_component in parts) and not facts.is_same_eagerly

    return applies


def _is_own_backend(facts: FailureFacts) -> bool:
    if "BackendCompilerFailed" not in facts.names and facts.backend_component is None:
        return False
    if any(part in (Component.INDUCTOR, Component.AOT) for part in facts.components):
        return False
    return facts.backend_component in {Component.SCRIPT, Component.LIBRARY} or any(call.own for call in facts.calls)


def _is_trace_operator(facts: FailureFacts) -> bool:
    """Return whether an operator refused its arguments while Dynamo or export ran it on fake tensors."""
    if facts.is_same_eagerly:
        return False
    if "TorchRuntimeError" in facts.names:
        return True
    return is_tracing(facts) and Component.FAKE in facts.components and "InternalTorchDynamoError" not in facts.names


def is_wrong(facts: FailureFacts) -> bool:
    """Return whether the script's own check fails with what was compiled, and holds without."""
    return facts.is_raised_by_script and facts.calls != () and facts.is_right_eagerly is True


def _counts_compilations(facts: FailureFacts) -> bool:
    """Return whether a check that fails is one of how often something was compiled, rather than of values.

    With a backend of the script's own nothing else is compiled than what that backend is given.
    """
    is_count = facts.is_raised_by_script and facts.checks_backend
    return (is_wrong(facts) or is_count) and any(call.own for call in facts.calls)


def _is_meta(facts: FailureFacts) -> bool:
    is_told = Component.META in facts.components or (facts.uses_meta and bool(_META_WORDS.search(facts.text)))
    return is_told and not facts.is_raised_by_script


def _is_operator(facts: FailureFacts) -> bool:
    refusals = {"RuntimeError", "IndexError", "NotImplementedError", "TypeError", "ValueError"}
    is_there = facts.calls != () or facts.innermost in {Component.TORCH, Component.SCRIPT}
    return facts.is_same_eagerly and facts.cause is not None and is_there and bool(facts.names & refusals)


CATEGORIES = (
    Category("out-of-memory", "it runs out of memory", "", _is_out_of_memory),
    Category(
        "compile-hang",
        "compiling does not end",
        "Dynamo",
        lambda facts: (
            facts.failure.outcome is Outcome.HANG
            and facts.failure.hang in {HangKind.SLOW_COMPILE, HangKind.ENDLESS_COMPILE}
        ),
        ("dynamo", "graph_breaks", "recompiles"),
    ),
    Category("hang", "it hangs", "", _ended(Outcome.HANG)),
    Category(
        "compiled-crash",
        "compiled code crashes, and the same code does not when it is not compiled",
        "generated code",
        lambda facts: facts.failure.outcome is Outcome.CRASH and facts.calls != () and facts.is_right_eagerly is True,
        ("output_code", "post_grad_graphs"),
    ),
    Category("crash", "a signal ends it", "a kernel", _ended(Outcome.CRASH)),
    Category(
        "device-fault",
        "a kernel on the device reads or writes where it may not",
        "generated code",
        lambda facts: bool(_ILLEGAL_ACCESS.search(facts.text)),
        ("output_code", "kernel_code"),
    ),
    Category("triton", "Triton does not compile a kernel", "Triton", _is_triton, ("output_code", "schedule")),
    Category(
        "worker-error",
        "a worker of a DataLoader raises",
        "the script",
        lambda facts: Component.DATA in facts.components,
    ),
    Category(
        "missing-package",
        "the script needs a package that is not installed",
        "the script",
        lambda facts: missing_module(facts.failure.signature, facts.failure.message).isidentifier(),
    ),
    Category("missing-api", "the script uses what this release does not have", "the script", _is_missing_api),
    Category(
        "recompile-limit",
        "a function is compiled again and again, up to the limit",
        "Dynamo",
        _raised("RecompileLimitExceeded", "FailOnRecompileLimitHit", "CacheLimitExceeded", "FailOnCacheLimitHit"),
        _RECOMPILES,
    ),
    Category(
        "recompile-error",
        "a function is compiled again where that is forbidden",
        "Dynamo",
        _raised("RecompileError"),
        _RECOMPILES,
    ),
    Category(
        "data-dependent",
        "the code branches on the values of a tensor",
        "Dynamo",
        _is_data_dependent,
        ("graph_breaks", "dynamic"),
    ),
    Category(
        "dynamic-shapes", "a dimension that is to be dynamic is not", "Dynamo", _is_constraint, ("dynamic", "guards")
    ),
    Category(
        "cpp-compile",
        "the C++ that Inductor writes does not compile",
        "Inductor",
        _raised("CppCompileError", "CppWrapperCodegenError", "CUDACompileError", "InvalidCxxCompiler"),
        ("output_code", "schedule"),
    ),
    Category("own-backend", "a backend that is not torch's raises", "the backend", _is_own_backend, ("graph_code",)),
    Category(
        "lowering",
        "Inductor cannot lower an operator",
        "Inductor",
        _raised("LoweringException"),
        ("post_grad_graphs", "output_code"),
    ),
    Category(
        "inductor",
        "Inductor fails to compile a graph",
        "Inductor",
        _is_backend(Component.INDUCTOR),
        ("post_grad_graphs", "output_code", "schedule"),
    ),
    Category(
        "aot-autograd",
        "AOTAutograd fails to trace a graph",
        "AOTAutograd",
        _is_backend(Component.AOT),
        ("aot_graphs", "graph_code"),
    ),
    Category(
        "generated-code",
        "code that Inductor wrote raises when it is run",
        "generated code",
        lambda facts: Component.GENERATED in facts.components and not is_tracing(facts),
        ("output_code", "post_grad_graphs"),
    ),
    Category(
        "trace-operator",
        "an operator refuses its arguments while it is traced",
        "fake tensors",
        _is_trace_operator,
        ("dynamo", "graph_code"),
    ),
    Category(
        "graph-break",
        "Dynamo cannot trace the code",
        "Dynamo",
        _raised("Unsupported", "UncapturedHigherOrderOpError", "InfiniteGeneratorError"),
        ("graph_breaks", "bytecode"),
    ),
    Category(
        "dynamo-internal", "Dynamo itself fails", "Dynamo", _raised("InternalTorchDynamoError"), ("dynamo", "bytecode")
    ),
    Category(
        "export",
        "torch.export refuses the module",
        "torch.export",
        lambda facts: facts.exports and Component.EXPORT in facts.components,
        ("export", "graph_breaks", "dynamic"),
    ),
    Category(
        "silent-recompilation",
        "a function is compiled more often than the script allows",
        "Dynamo",
        lambda facts: _counts_compilations(facts) and facts.ladder.recompilations > 0,
        _RECOMPILES,
    ),
    Category(
        "silent-graph-break",
        "a function is compiled in more parts than the script allows",
        "Dynamo",
        lambda facts: _counts_compilations(facts) and facts.ladder.graph_breaks > 0,
        ("graph_breaks",),
    ),
    Category(
        "accuracy",
        "the result is wrong when compiled, and right when not",
        "",
        is_wrong,
        ("aot_graphs", "post_grad_graphs", "output_code"),
    ),
    Category("dynamo", "it fails while Dynamo traces the code", "Dynamo", is_tracing, ("dynamo", "graph_code")),
    Category(
        "fake-tensor",
        "an operator fails on fake tensors",
        "fake tensors",
        lambda facts: Component.FAKE in facts.components and facts.is_same_eagerly,
    ),
    Category(
        "meta-missing",
        "an operator has no kernel for meta tensors",
        "meta kernels",
        lambda facts: "NotImplementedError" in facts.names and bool(_OPERATOR_LACKS.search(facts.text)),
    ),
    Category("meta-error", "a kernel for meta tensors refuses its arguments", "meta kernels", _is_meta),
    Category(
        "meta-accepts",
        "a kernel for meta tensors accepts what it should refuse, or gives what the script does not expect",
        "meta kernels",
        lambda facts: facts.uses_meta and facts.is_raised_by_script and facts.is_same_eagerly,
    ),
    Category(
        "script-check",
        "a check of the script's own fails, compiled or not",
        "an operator, or the script",
        lambda facts: facts.is_raised_by_script and facts.is_same_eagerly,
    ),
    Category("operator", "an operator raises", "a kernel", _is_operator),
    Category(
        "silent-graph-break",
        "it passes, and Dynamo breaks the graph",
        "Dynamo",
        lambda facts: facts.failure.outcome is Outcome.PASS and facts.ladder.graph_breaks > 0,
        ("graph_breaks",),
    ),
    Category(
        "silent-recompilation",
        "it passes, and functions are compiled again",
        "Dynamo",
        lambda facts: facts.failure.outcome is Outcome.PASS and facts.ladder.recompilations > 0,
        _RECOMPILES,
    ),
    Category("skipped", "the script says that it does not apply here", "", _ended(Outcome.SKIP)),
    Category(HEALTHY, "it passes", "", _ended(Outcome.PASS)),
)


def logs_of(name: str) -> tuple[str, ...]:
    """Return the artifacts of TORCH_LOGS that tell of a category."""
    return next((category.logs for category in CATEGORIES if category.name == name), ())


def classify(facts: FailureFacts) -> Classification:
    """Return the first category whose rule applies; where none does, say which is the nearest."""
    found = next((category for category in CATEGORIES if category.applies(facts)), None)
    layer, module = first_failing(facts.ladder.rungs), missing_module(facts.failure.signature, facts.failure.message)
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
    if facts.ladder.guilty:
        yield f"of that layer, it needs {facts.ladder.guilty}"
    if own := [call.backend for call in facts.calls if call.own]:
        yield f"the backend {own[0]} is the script's own and was never replaced"


def _nearest(facts: FailureFacts) -> Category | None:
    """Return the category whose layer is that of the code that raised."""
    return next((category for category in CATEGORIES if category.layer and category.layer == facts.innermost), None)
