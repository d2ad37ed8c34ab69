"""The options that decide how cells are run."""

from dataclasses import dataclass, field
from functools import partial

from whichtorch.base.option import Strings, megabytes, option, seconds
from whichtorch.process.sandbox import Sandbox
from whichtorch.suite.chain import chain_variant

running_option = partial(option, panel="How it runs")
sandbox_option = partial(
    running_option,
    "--sandbox",
    if_bare=Sandbox.BUBBLEWRAP,
    help="Run scripts without network, your files and your variables: bubblewrap or off.",
)
fresh_option = partial(running_option, "--fresh", default=False, help="Run again what earlier runs have answered.")
jobs_option = partial(
    option,
    "--jobs",
    panel="Budget",
    metavar="N",
    least=1,
    help="How many run at once. [default: by cores and memory; a search 1; of a cluster all slots]",
)


def _variables() -> str:
    from whichtorch.environments.configs import variables_digest

    return variables_digest()


CHAINED = ("runs", "vary", "cache_dir")  # fields that make an attempt a chain of runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How cells are run. The last four are not options of the command line."""

    timeout: float | None = running_option(
        metavar="TIME", parse=seconds, help="How long an attempt may take, instead of the test's own timeout."
    )
    memory: float | None = running_option(
        metavar="SIZE",
        parse=megabytes,
        help="Memory limit of an attempt, all of its processes together, such as 8GB. "
        "[default: memory_mb in the script's header, otherwise 4096MB]",
    )
    repeat: int = running_option(default=1, metavar="N", least=1, help="Attempts per cell.")
    runs: int | None = running_option(
        metavar="N",
        least=1,
        help="Runs per attempt, one after another: each finds the compiler caches of those before. [default: 1]",
    )
    vary: Strings = running_option(
        default=(), metavar="NAME=A,B", help="A variable that differs between the runs; threads=1,2. Repeatable."
    )
    cache_dir: Strings = running_option(
        default=(), metavar="NAME", help="A variable that names one more folder of caches for the runs. Repeatable."
    )
    fresh: bool = fresh_option()
    stall: bool = running_option(
        "--no-stall", default=True, help="Wait out every timeout, even on evidence of a deadlock."
    )
    fail_fast: bool = running_option(
        "-x --fail-fast", default=False, help="Stop after the first failure that no scenario expects."
    )
    cold: bool = running_option(
        default=False, help="Start each script in a fresh Python, even where torch could be imported once and shared."
    )
    sandbox: Sandbox = sandbox_option(default=Sandbox.OFF)
    until: frozenset[str] = frozenset()  # outcomes: after an attempt with one of these, no other is made
    provisional: bool = False  # a slow attempt does not get a longer look
    in_search: bool = False  # passes elsewhere are known: many times their duration counts as a hang
    variables: str = field(default_factory=_variables)  # digest of the shell variables that may change what torch does

    @property
    def chain(self) -> dict[str, str]:
        """What they add to a variant for a chain of runs. Raises UsageError for what can be none."""
        return chain_variant(self.runs, self.vary, self.cache_dir)
