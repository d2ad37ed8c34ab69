"""The suite: one script per case, in folders by family, and what their headers say.

A script is run as it is, `python script.py`; all that this package does with it is read its header.
"""

from __future__ import annotations

import difflib
import itertools
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.errors import UsageError
from matrix.model import Expectation, Outcome, Scenario
from matrix.suite.headers import SUITE_ROOT, VARIABLE_PREFIX, Mistake, ScenarioError, read_scenario
from matrix.suite.specifiers import in_specifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "SUITE_ROOT",
    "Mistake",
    "ScenarioError",
    "agrees",
    "expected",
    "read_scenario",
    "script",
    "select",
    "suite",
    "variant_environ",
    "variants_of",
]

_TAG = "tag:"
_VARIANT = re.compile(r"(?P<glob>.*)\[(?P<pairs>\w+=[^\[\]]*)\]")
_CLOSE = 0.75  # of 1: what two names of one family have in common is less


def suite(root: Path | None = None) -> list[Scenario]:
    """Return the scenarios in the folders of `root`, sorted by name: "family/script".

    Raises ScenarioError with every mistake of every header.
    """
    root = root or SUITE_ROOT
    found: list[Scenario] = []
    mistakes: list[Mistake] = []
    for path in sorted(root.glob("*/*.py")):
        if path.parent.name.startswith(("_", ".")) or path.name.startswith("_"):
            continue
        try:
            scenario = read_scenario(path, f"{path.parent.name}/{path.stem}")
            found.append(scenario.model_copy(update={"in_suite": True}))  # wherever `root` is
        except ScenarioError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ScenarioError(mistakes)
    return sorted(found, key=lambda scenario: scenario.name)


def select(scenarios: Sequence[Scenario], globs: Iterable[str]) -> list[Scenario]:
    """Return the scenarios that any glob names, in their own order; all of them without a glob.

    A glob is held against names ("meta_mm/*"), or against tags ("tag:dynamo"), or is the path of a
    script; "NAME[op=mm,grad=off]" narrows it to some variants. What runs on request only is left out
    unless a glob spells out its family. Raises UsageError for a glob that selects nothing.
    """
    globs = list(globs) or ["*"]
    chosen: dict[str, list[Scenario]] = {}
    for glob in globs:
        pattern, wanted = _split_variant(glob)
        found = [scenario for scenario in scenarios if _names(pattern, scenario)]
        if not found and glob != "*":  # an empty suite is nobody's typing mistake
            raise _no_match(pattern, scenarios)
        for scenario in found:
            chosen.setdefault(scenario.name, []).append(_narrowed(scenario, wanted))
    return [narrowed for scenario in scenarios for narrowed in _widest(scenario, chosen.get(scenario.name, []))]


def script(text: str) -> Scenario:
    """Return the user's script that "repro.py" or "repro.py[op=mm]" means, to be run where the user is.

    Raises UsageError where there is no such file, ScenarioError for mistakes of its header.
    """
    name, wanted = (text, dict[str, str]()) if Path(text).is_file() else _split_variant(text)
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"no such script: {name}")
    return _narrowed(read_scenario(path.absolute(), name).model_copy(update={"in_suite": False}), wanted)


def _split_variant(glob: str) -> tuple[str, dict[str, str]]:
    """Return glob and variant of "NAME[op=mm,grad=off]"; brackets without "=" are a glob's own."""
    found = _VARIANT.fullmatch(glob)
    if found is None:
        return glob, {}
    pairs = (pair.partition("=") for pair in found["pairs"].split(","))
    return found["glob"], {name.strip(): value.strip() for name, _, value in pairs}


def _narrowed(scenario: Scenario, wanted: dict[str, str]) -> Scenario:
    """Return the scenario with only the variants that are wanted.

    Where one factor at a time differs from the base, naming another value than the base's leaves all
    other factors at theirs.
    """
    for name, value in wanted.items():
        if value not in scenario.variants.get(name, ()):
            known = "; ".join(f"{name} = {' | '.join(values)}" for name, values in scenario.variants.items())
            raise UsageError(
                f"{scenario.name} has no variant {name}={value}",
                hint=f"its variants are {known}" if known else "it has no variants",
            )
    all_values = scenario.variants
    if scenario.one_factor and any(value != all_values[name][0] for name, value in wanted.items()):
        all_values = {name: values[:1] for name, values in all_values.items()}
    narrower = {name: (wanted[name],) if name in wanted else values for name, values in all_values.items()}
    return scenario.model_copy(update={"variants": narrower})


def _widest(scenario: Scenario, narrowed: list[Scenario]) -> list[Scenario]:
    """Return a scenario as often as it was narrowed differently; once where it was chosen whole."""
    if any(one.variants == scenario.variants for one in narrowed):
        return [scenario]
    return [one for place, one in enumerate(narrowed) if one not in narrowed[:place]]


def _names(glob: str, scenario: Scenario) -> bool:
    """Return True where `glob` selects `scenario`."""
    return _matches(glob, scenario) and (not scenario.on_request or _spells_out(glob, scenario))


def _matches(glob: str, scenario: Scenario) -> bool:
    if glob.startswith(_TAG):
        return any(fnmatchcase(tag, glob.removeprefix(_TAG)) for tag in scenario.tags)
    return fnmatchcase(scenario.name, _as_name(glob)) or _is_path_of(glob, scenario)


def _spells_out(glob: str, scenario: Scenario) -> bool:
    """Return True where `glob` holds the family of `scenario` without a wildcard, or is its path."""
    family = scenario.name.rpartition("/")[0]
    if glob.startswith(_TAG):
        return glob.removeprefix(_TAG) == family
    return _as_name(glob).rpartition("/")[0] == family or _is_path_of(glob, scenario)


def _as_name(glob: str) -> str:
    """Return the glob for names that a path such as scenarios/family/script.py stands for."""
    return glob.removeprefix("./").removeprefix("scenarios/").removesuffix(".py")


def _is_path_of(glob: str, scenario: Scenario) -> bool:
    return glob.endswith(".py") and Path(glob).resolve() == scenario.path.resolve()


def _no_match(glob: str, scenarios: Sequence[Scenario]) -> UsageError:
    """Return the error for a glob that selects nothing, with what was probably meant."""
    on_request = [scenario.name for scenario in scenarios if _matches(glob, scenario)]
    if on_request:
        families = sorted({f"{name.rpartition('/')[0]}/*" for name in on_request})
        return UsageError(
            f"only scenarios that run on request match {glob!r}",
            hint=f"ask for them by family: {', '.join(families)}",
        )
    if glob.startswith(_TAG):
        tags = sorted({tag for scenario in scenarios for tag in scenario.tags})
        near = [_TAG + tag for tag in difflib.get_close_matches(glob.removeprefix(_TAG), tags)]
        known = f"known tags are {', '.join(tags)}"
    else:
        families = sorted({scenario.name.rpartition("/")[0] for scenario in scenarios})
        meant = {f"{family}/*": f"{family}/*" for family in families}
        for scenario in scenarios:
            meant[scenario.name] = meant[scenario.name.rpartition("/")[2]] = scenario.name
        near = [meant[name] for name in difflib.get_close_matches(_as_name(glob), meant, cutoff=_CLOSE)]
        known = f"the families are {', '.join(families)}"
    remedy = f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else known
    return UsageError(f"no scenario matches {glob!r}", hint=remedy)


def variants_of(scenario: Scenario) -> list[dict[str, str]]:
    """Return every combination of the scenario's variants; one that is empty if it has none.

    With `one_factor`: the base, which is the first value of each, then the base with one other value in
    place, for each other value.
    """
    names = list(scenario.variants)
    if scenario.one_factor:
        base = {name: values[0] for name, values in scenario.variants.items()}
        return [base, *(base | {name: value} for name, values in scenario.variants.items() for value in values[1:])]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*scenario.variants.values())]


def variant_environ(variant: dict[str, str]) -> dict[str, str]:
    """Return the variables through which a script learns its variant: {"op": "mm"} as WHICHTORCH_OP=mm."""
    return {VARIABLE_PREFIX + name.upper(): value for name, value in variant.items()}


def expected(
    scenario: Scenario, variant: dict[str, str], *, torch: str, python: str, build: str, config: str
) -> Expectation | None:
    """Return the first line of the scenario's `expect` that applies, if any.

    `torch` and `python` are versions. A pre-release counts as the release it leads to, so that "<2.12"
    leaves out the nightlies of 2.12; a local part such as +cpu never matters.
    """
    for line in scenario.expect:
        applies = (
            in_specifier(torch, line.torch, as_final=True)
            and in_specifier(python, line.python, as_final=True)
            and fnmatchcase(build, line.build or "*")
            and fnmatchcase(config, line.config or "*")
            and line.variant.items() <= variant.items()
        )
        if applies:
            return line
    return None


def agrees(outcome: Outcome, line: Expectation | None) -> bool:
    """Return True for the outcome that a header's line announces, which is `pass` where there is none.

    A skip never contradicts a header: the script says that the question does not arise here.
    """
    return outcome in {line.outcome if line else Outcome.PASS, Outcome.SKIP}
