"""What kinds of failures there are: one table of rules, the first that applies counts.

The order is that of certainty: how the process ended, then the types of the exceptions, then whose code raised them,
then what the ladder shows. The words of a message decide only where releases raise one type for different things.

It is longer than other modules because the table and its rules are read together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.code_owner import Component
from whichtorch.matrix.diagnosis.hang.causes import HangKind
from whichtorch.matrix.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from whichtorch.matrix.triage.failure_facts import FailureFacts

_LIMITS = ("RecompileLimitExceeded", "FailOnRecompileLimitHit", "CacheLimitExceeded", "FailOnCacheLimitHit")
# raised only while something is compiled
COMPILING = frozenset(
    ["BackendCompilerFailed", "InductorError", "LoweringException", "TorchRuntimeError", "Unsupported", "UserError"]
)
_COMPILERS = frozenset(["CppCompileError", "CppWrapperCodegenError", "CUDACompileError", "InvalidCxxCompiler"])
_SYMBOLIC = frozenset(
    ["GuardOnDataDependentSymNode", "GuardOnDataDependentSymNodeError", "PendingUnbackedSymbolNotFound"]
)
_CONSTRAINTS = frozenset(["ConstraintViolationError"])
_DATA_DEPENDENT = re.compile(r"data.dependent|dynamic control flow", re.IGNORECASE)
_CONSTRAINT = re.compile(r"constraints? violated|marked .* as dynamic but|not all values of", re.IGNORECASE)
_META_WORDS = re.compile(r"\bMeta\b(?:' backend| tensors?)|\bmeta\b.*(?:device|tensor)|(?:device|tensor).*\bmeta\b")
_OPERATOR_LACKS = re.compile(
    r"'Meta' backend|with Meta tensors|no (?:fake|meta|abstract) (?:impl|kernel)", re.IGNORECASE
)
_REMOVED = re.compile(r"is now removed|has been removed|config\.\w+ does not exist")
_ILLEGAL_ACCESS = re.compile(r"illegal memory access|device-side assert|unspecified launch failure")
_STUCK_COMPILING = frozenset([HangKind.SLOW_COMPILE, HangKind.ENDLESS_COMPILE])
_REFUSALS = frozenset(["RuntimeError", "IndexError", "NotImplementedError", "TypeError", "ValueError"])  # of operators
_TRITON = frozenset(["CompilationError", "OutOfResources", "CompileTimeAssertionFailure"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A kind of failure."""

    name: str
    words: str  # what it is, for a heading
    layer: str  # where to look: a part of torch, or "the script"
    logs: tuple[str, ...] = ()  # artifacts of TORCH_LOGS that tell of it
    applies: Callable[[FailureFacts], bool]


def _has(*names: str) -> Callable[[FailureFacts], bool]:
    return lambda facts: bool(facts.names.intersection(names))


def _is_removed(facts: FailureFacts) -> bool:
    """Return whether torch says that what the script asks for is gone, or is no setting of this release."""
    return facts.innermost is not Component.SCRIPT and bool(_REMOVED.search(facts.text))


def _is_data_dependent(facts: FailureFacts) -> bool:
    if facts.names & _SYMBOLIC:
        return True
    return bool(facts.names & {"Unsupported", "UserError"}) and bool(_DATA_DEPENDENT.search(facts.text))


def _is_constraint(facts: FailureFacts) -> bool:
    if facts.names & _CONSTRAINTS:
        return True
    return "UserError" in facts.names and bool(_CONSTRAINT.search(facts.text))


def is_tracing(facts: FailureFacts) -> bool:
    """Return whether Dynamo was reading code when it failed."""
    functions = {frame.function for frame in facts.frames}
    return any("convert_frame" in frame.file for frame in facts.frames) or "transform_code_object" in functions


def _is_backend(part: Component) -> Callable[[FailureFacts], bool]:
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
    if facts.is_raised_by_script:
        return False
    return Component.META in facts.components or (facts.uses_meta and bool(_META_WORDS.search(facts.text)))


CATEGORIES = (
    Category(
        name="out-of-memory",
        words="it runs out of memory",
        layer="",
        applies=lambda facts: (
            facts.failure.outcome is Outcome.OOM or bool(facts.names & {"OutOfMemoryError", "MemoryError"})
        ),
    ),
    Category(
        name="compile-hang",
        words="compiling does not end",
        layer="Dynamo",
        logs=("dynamo", "graph_breaks", "recompiles"),
        applies=lambda facts: facts.failure.outcome is Outcome.HANG and facts.failure.hang in _STUCK_COMPILING,
    ),
    Category(
        name="hang",
        words="it hangs",
        layer="",
        applies=lambda facts: facts.failure.outcome is Outcome.HANG,
    ),
    Category(
        name="compiled-crash",
        words="what was compiled crashes, and the same code does not when it is not compiled",
        layer="generated code",
        logs=("output_code", "post_grad_graphs"),
        applies=lambda facts: (
            facts.failure.outcome is Outcome.CRASH and facts.calls != () and facts.is_right_eagerly is True
        ),
    ),
    Category(
        name="crash",
        words="a signal ends it",
        layer="a kernel",
        applies=lambda facts: facts.failure.outcome is Outcome.CRASH,
    ),
    Category(
        name="device-fault",
        words="a kernel on the device reads or writes where it may not",
        layer="generated code",
        logs=("output_code", "kernel_code"),
        applies=lambda facts: bool(_ILLEGAL_ACCESS.search(facts.text)),
    ),
    Category(
        name="triton",
        words="Triton does not compile a kernel",
        layer="Triton",
        logs=("output_code", "schedule"),
        applies=lambda facts: bool(facts.names & _TRITON) and any("/triton/" in frame.file for frame in facts.frames),
    ),
    Category(
        name="worker-error",
        words="a worker of a DataLoader raises",
        layer="the script",
        applies=lambda facts: Component.DATA in facts.components,
    ),
    Category(
        name="missing-api",
        words="the script uses what this release does not have",
        layer="the script",
        applies=lambda facts: not is_tracing(facts) and (facts.failure.is_missing_api or _is_removed(facts)),
    ),
    Category(
        name="recompile-limit",
        words="a function is compiled again and again, up to the limit",
        layer="Dynamo",
        logs=("recompiles", "recompiles_verbose", "guards"),
        applies=_has(*_LIMITS),
    ),
    Category(
        name="recompile-error",
        words="a function is compiled again where that is forbidden",
        layer="Dynamo",
        logs=("recompiles", "recompiles_verbose", "guards"),
        applies=_has("RecompileError"),
    ),
    Category(
        name="data-dependent",
        words="the code branches on the values of a tensor",
        layer="Dynamo",
        logs=("graph_breaks", "dynamic"),
        applies=_is_data_dependent,
    ),
    Category(
        name="dynamic-shapes",
        words="a dimension that is to be dynamic is not",
        layer="Dynamo",
        logs=("dynamic", "guards"),
        applies=_is_constraint,
    ),
    Category(
        name="cpp-compile",
        words="the C++ that Inductor writes does not compile",
        layer="Inductor",
        logs=("output_code", "schedule"),
        applies=lambda facts: bool(facts.names & _COMPILERS),
    ),
    Category(
        name="own-backend",
        words="a backend that is not torch's raises",
        layer="the backend",
        logs=("graph_code",),
        applies=_is_own_backend,
    ),
    Category(
        name="lowering",
        words="Inductor cannot lower an operator",
        layer="Inductor",
        logs=("post_grad_graphs", "output_code"),
        applies=_has("LoweringException"),
    ),
    Category(
        name="inductor",
        words="Inductor fails to compile a graph",
        layer="Inductor",
        logs=("post_grad_graphs", "output_code", "schedule"),
        applies=_is_backend(Component.INDUCTOR),
    ),
    Category(
        name="aot-autograd",
        words="AOTAutograd fails to trace a graph",
        layer="AOTAutograd",
        logs=("aot_graphs", "graph_code"),
        applies=_is_backend(Component.AOT),
    ),
    Category(
        name="generated-code",
        words="code that Inductor wrote raises when it is run",
        layer="generated code",
        logs=("output_code", "post_grad_graphs"),
        applies=lambda facts: Component.GENERATED in facts.components and not is_tracing(facts),
    ),
    Category(
        name="trace-operator",
        words="an operator refuses its arguments while it is traced",
        layer="fake tensors",
        logs=("dynamo", "graph_code"),
        applies=_is_trace_operator,
    ),
    Category(
        name="graph-break",
        words="Dynamo cannot trace the code",
        layer="Dynamo",
        logs=("graph_breaks", "bytecode"),
        applies=_has("Unsupported", "UncapturedHigherOrderOpError", "InfiniteGeneratorError"),
    ),
    Category(
        name="dynamo-internal",
        words="Dynamo itself fails",
        layer="Dynamo",
        logs=("dynamo", "bytecode"),
        applies=_has("InternalTorchDynamoError"),
    ),
    Category(
        name="export",
        words="torch.export refuses the module",
        layer="torch.export",
        logs=("export", "graph_breaks", "dynamic"),
        applies=lambda facts: facts.exports and Component.EXPORT in facts.components,
    ),
    Category(
        name="silent-recompilation",
        words="a function is compiled more often than the script allows",
        layer="Dynamo",
        logs=("recompiles", "recompiles_verbose", "guards"),
        applies=lambda facts: _counts_compilations(facts) and facts.recompilations > 0,
    ),
    Category(
        name="silent-graph-break",
        words="a function is compiled in more parts than the script allows",
        layer="Dynamo",
        logs=("graph_breaks",),
        applies=lambda facts: _counts_compilations(facts) and facts.graph_breaks > 0,
    ),
    Category(
        name="accuracy",
        words="the result is wrong compiled, and right when it is not",
        layer="",
        logs=("aot_graphs", "post_grad_graphs", "output_code"),
        applies=is_wrong,
    ),
    Category(
        name="dynamo",
        words="it fails while Dynamo traces the code",
        layer="Dynamo",
        logs=("dynamo", "graph_code"),
        applies=is_tracing,
    ),
    Category(
        name="fake-tensor",
        words="an operator fails on fake tensors",
        layer="fake tensors",
        applies=lambda facts: Component.FAKE in facts.components and facts.is_same_eagerly,
    ),
    Category(
        name="meta-missing",
        words="an operator has no kernel for meta tensors",
        layer="meta kernels",
        applies=lambda facts: "NotImplementedError" in facts.names and bool(_OPERATOR_LACKS.search(facts.text)),
    ),
    Category(
        name="meta-error",
        words="a kernel for meta tensors refuses its arguments",
        layer="meta kernels",
        applies=_is_meta,
    ),
    Category(
        name="meta-accepts",
        words="a kernel for meta tensors accepts what it should refuse, or gives what the script does not expect",
        layer="meta kernels",
        applies=lambda facts: facts.uses_meta and facts.is_raised_by_script and facts.is_same_eagerly,
    ),
    Category(
        name="script-check",
        words="a check of the script's own fails, compiled or not",
        layer="an operator, or the script",
        applies=lambda facts: facts.is_raised_by_script and facts.is_same_eagerly,
    ),
    Category(
        name="operator",
        words="an operator raises",
        layer="a kernel",
        applies=lambda facts: (
            facts.is_same_eagerly
            and facts.cause is not None
            and (facts.calls != () or facts.innermost in {Component.TORCH, Component.SCRIPT})
            and bool(facts.names & _REFUSALS)
        ),
    ),
    Category(
        name="silent-graph-break",
        words="it passes, and Dynamo breaks the graph",
        layer="Dynamo",
        logs=("graph_breaks",),
        applies=lambda facts: facts.failure.outcome is Outcome.PASS and facts.graph_breaks > 0,
    ),
    Category(
        name="silent-recompilation",
        words="it passes, and functions are compiled again",
        layer="Dynamo",
        logs=("recompiles", "recompiles_verbose", "guards"),
        applies=lambda facts: facts.failure.outcome is Outcome.PASS and facts.recompilations > 0,
    ),
    Category(
        name="skipped",
        words="the script says that it does not apply here",
        layer="",
        applies=lambda facts: facts.failure.outcome is Outcome.SKIP,
    ),
    Category(
        name="healthy",
        words="it passes",
        layer="",
        applies=lambda facts: facts.failure.outcome is Outcome.PASS,
    ),
)


def logs_of(name: str) -> tuple[str, ...]:
    """Return the artifacts of TORCH_LOGS that tell of a category."""
    return next((category.logs for category in CATEGORIES if category.name == name), ())
