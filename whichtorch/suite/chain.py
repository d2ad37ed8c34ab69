"""Chains: runs of a script in fresh processes, one after another, that share one set of compiler caches.

A chain is a variant of its test, with keys that no header's own variant has, so that whatever tells variants apart
tells chains from single runs: "repro.py[runs=2,OMP_NUM_THREADS=1,2]".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from whichtorch.base.errors import UsageError

RUNS = "runs"  # how many runs
WRITTEN_BY = "written-by"  # the environment that the first run is made in
_VARIABLE = re.compile(r"(?=.*[A-Z])[A-Za-z_]\w*")  # a header's variants have no capitals
_THREADS = "threads"  # what users call the variable below
_THREADS_VARIABLE = "OMP_NUM_THREADS"
# variables that name folders which all runs of a chain share
SHARED = ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")


def is_chain_key(name: str) -> bool:
    """Return whether a key of a variant says how a chain is run."""
    return name in {RUNS, WRITTEN_BY} or _VARIABLE.fullmatch(name) is not None


def without_chain(variant: Mapping[str, str]) -> dict[str, str]:
    """Return a variant without the keys that say how a chain is run."""
    return {name: value for name, value in variant.items() if not is_chain_key(name)}


def check_own_caches(variant: Mapping[str, str]) -> None:
    """Raise UsageError for a chain whose caches another environment writes, which only some commands can make."""
    if WRITTEN_BY in variant:
        hint = "leave written-by out of the name of the test"
        raise UsageError("only matrix and bisect can run a test with written-by", hint=hint)


def chain_variant(runs: int | None, vary: Sequence[str]) -> dict[str, str]:
    """Return the keys of a variant for what options say of a chain; none for a single run.

    Raises UsageError for what can be no chain.
    """
    varied: dict[str, str] = {}
    for text in vary:
        name, mark, values = text.partition("=")
        if not mark or {*"[]="} & {*values}:
            raise UsageError(f"--vary {text}: not NAME=A,B", hint="name a variable and its value in each run")
        name = _THREADS_VARIABLE if name == _THREADS else name
        if name in varied:
            raise UsageError(f"--vary {text}: {name} is named twice", hint="give all of its values in one --vary")
        if not _VARIABLE.fullmatch(name):
            hint = f"name {_THREADS}, or a variable with capitals such as CUBLAS_WORKSPACE_CONFIG"
            raise UsageError(f"--vary {text}: {name!r} is no variable that can differ between runs", hint=hint)
        varied[name] = values
    count = runs or max((len(values.split(",")) for values in varied.values()), default=1)
    variant = {RUNS: str(count)} | varied
    return variant if Chain.of(variant) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """How the runs of a chain are made."""

    runs: int
    varied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # variables, with a value for each run
    writer: str = ""  # what the environment of the first run is called; "": the one of all others

    @classmethod
    def of(cls, variant: Mapping[str, str]) -> Self | None:
        """Return the chain that a variant asks for, None for a single run. Raises UsageError for what can be none."""
        own = {name: value for name, value in variant.items() if is_chain_key(name)}
        if not own:
            return None
        count = own.pop(RUNS, "1")
        if not count.isdecimal() or not int(count):
            raise UsageError(f"{RUNS}={count}: not a number of runs", hint="give 2 for a run and one after it")
        writer = own.pop(WRITTEN_BY, "")
        runs, varied = int(count), {name: tuple(values.split(",")) for name, values in own.items()}
        for name, values in varied.items():
            told = f"{name}={','.join(values)}"
            if name in SHARED:
                raise UsageError(f"{told}: all runs share the folder of {name}", hint="let another variable differ")
            if name == _THREADS_VARIABLE and not all(value.isdecimal() and int(value) for value in values):
                raise UsageError(f"{told}: not numbers of threads", hint="write threads=2,1")
            if len(values) != runs and (runs > 1 or len(values) > 1):
                wanted = f"{runs} {'runs' if runs > 1 else 'run'}"
                raise UsageError(f"{told} has {len(values)} values for {wanted}", hint="give a value for each run")
        only = [f"{name}={value}" for name, value in (own | ({WRITTEN_BY: writer} if writer else {})).items()]
        if runs == 1 and only:
            raise UsageError(f"{only[0]}: a single run has no caches of an earlier one", hint="add --runs 2")
        return cls(runs=runs, varied=varied, writer=writer) if runs > 1 else None

    @property
    def options(self) -> tuple[str, ...]:
        """The options that ask for it, without those that say where its first run is made."""
        varied = (word for name, values in self.varied.items() for word in ("--vary", f"{name}={','.join(values)}"))
        return "--runs", str(self.runs), *varied

    def variables(self, run: int) -> dict[str, str]:
        """Return the variables that have a value of their own in a run; the first one is 1."""
        return {name: values[run - 1] for name, values in self.varied.items()}
