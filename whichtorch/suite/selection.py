"""The suite of scenarios: read all, select some, narrow them to variants, and tell which outcome is expected.

A suite is a folder of scripts, one per case, in subfolders by family. A script runs as it is, `python script.py`.
"""

from __future__ import annotations

import difflib
import itertools
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from whichtorch.base.errors import UsageError
from whichtorch.base.version_parsing import in_specifier
from whichtorch.model import Expectation, Outcome, Scenario, digest
from whichtorch.suite.chain import RUNS, Chain, is_chain_key, without_chain
from whichtorch.suite.headers import SUITE_ROOT, VARIABLE_PREFIX, Mistake, ScenarioError, read_scenario
from whichtorch.suite.mistyped import near_script, probably_meant

_TAG = "tag:"
_VARIANT = re.compile(r"(?P<glob>.*)\[(?P<pairs>\w+=[^\[\]]*)\]")
_BEFORE_NAME = re.compile(r",(?=[^,]*=)")
_CLOSE = 0.75  # of 1: two names of one family are less alike by their common part alone


def suite(root: Path | None = None) -> list[Scenario]:
    """Return the scenarios in the subfolders of `root`, by default the bundled ones, sorted by name: "family/script".

    Raises ScenarioError with the mistakes of all headers.
    """
    scenarios: list[Scenario] = []
    mistakes: list[Mistake] = []
    for path in sorted((root or SUITE_ROOT).glob("*/*.py")):
        if path.parent.name.startswith(("_", ".")) or path.name.startswith("_"):
            continue
        try:
            scenario = read_scenario(path, f"{path.parent.name}/{path.stem}")
            scenarios.append(scenario.model_copy(update={"in_suite": True}))  # wherever `root` is
        except ScenarioError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ScenarioError(mistakes)
    return sorted(scenarios, key=lambda scenario: scenario.name)


def select(scenarios: Sequence[Scenario], globs: Iterable[str], typed: Sequence[str] = ()) -> list[Scenario]:
    """Return the scenarios that any glob selects, in their own order; all of them without a glob.

    A glob matches names ("meta_mm/*") or tags ("tag:dynamo"), or is the path of a script. "NAME[op=mm,grad=off]"
    narrows it to some variants. Scenarios on request are left out unless a glob spells out their family. Raises
    UsageError for a glob that selects nothing, with what was probably meant: `typed` has the globs and the scripts.
    """
    chosen: dict[str, list[Scenario]] = {}
    for glob in list(globs) or ["*"]:
        pattern, variant = _split_variant(glob)
        selected = [scenario for scenario in scenarios if all(_match(pattern, scenario))]
        if not selected and glob != "*":  # an empty suite is not a typing mistake
            raise _no_match(pattern, scenarios, typed[typed.index(glob) :] if typed else [glob])
        for scenario in selected:
            chosen.setdefault(scenario.name, []).append(_narrowed(scenario, variant))
    return [narrowed for scenario in scenarios for narrowed in _distinct(scenario, chosen.get(scenario.name, []))]


def is_script(text: str) -> bool:
    """Return whether a test is named by the path of a script outside the suite."""
    path = Path(_split_variant(text)[0])
    return path.suffix == ".py" and not {*"*?"} & {*path.name} and not path.resolve().is_relative_to(SUITE_ROOT)


def script(text: str, suite_folder: Path | None = None) -> Scenario:
    """Return the user's script that "repro.py" or "repro.py[op=mm]" names. It runs in the user's folder.

    What is not here may be a script of the user's own suite, by its name. Raises UsageError where there is no such
    file, or it is not a Python script; ScenarioError for mistakes in its header.
    """
    name, variant = (text, dict[str, str]()) if Path(text).is_file() else _split_variant(text)
    path = Path(name)
    if suite_folder and not path.is_file() and (suite_folder / path).is_file():
        return _narrowed(suite_script(suite_folder / path, suite_folder), variant)
    if not path.is_file():
        near = near_script(name)
        raise UsageError(f"no such script: {name}", hint=f"did you mean {near}?" if near else "")
    if path.suffix != ".py":
        hint = "whichtorch runs files whose names end in .py; write a Python script that does what this one does"
        raise UsageError(f"{name} is not a Python script", hint=hint)
    return _narrowed(read_scenario(path.absolute(), name).model_copy(update={"in_suite": False}), variant)


def with_arguments(scenario: Scenario, arguments: Sequence[str]) -> Scenario:
    """Return a scenario that is started with arguments: with others it is another test."""
    if not arguments:
        return scenario
    name, source = f"{scenario.name} -- {shlex.join(arguments)}", digest([scenario.source_hash, arguments], 12)
    return scenario.model_copy(update={"name": name, "source_hash": source, "arguments": tuple(arguments)})


def suite_script(path: Path, folder: Path) -> Scenario:
    """Return a script of the user's own suite: it is called by its path in a folder, and runs there."""
    scenario = read_scenario(path, path.relative_to(folder).as_posix())
    return scenario.model_copy(update={"in_suite": False, "folder": folder})


def script_paths(glob: str, folder: Path) -> list[Path]:
    """Return the scripts that a glob matches in a folder, sorted. Raises UsageError where there are none."""
    try:
        found = sorted(path for path in folder.resolve().glob(glob) if path.is_file())
    except (NotImplementedError, ValueError):
        raise UsageError(f"{glob!r} is no path below the file's folder", hint="write it as repros/*.py") from None
    if not found:
        raise UsageError(f"no script matches {glob!r}", hint=f"paths begin in the file's folder, {folder.resolve()}")
    return found


def _split_variant(glob: str) -> tuple[str, dict[str, str]]:
    """Return glob and variant of "NAME[op=mm,grad=off]"; brackets without "=" belong to the glob.

    A value may have commas, as in "NAME[runs=2,OMP_NUM_THREADS=1,2]".
    """
    match = _VARIANT.fullmatch(glob)
    if match is None:
        return glob, {}
    pairs = (pair.partition("=") for pair in _BEFORE_NAME.split(match["pairs"]))
    return match["glob"], {name.strip(): value.strip() for name, _, value in pairs}


def _narrowed(scenario: Scenario, variant: dict[str, str]) -> Scenario:
    """Return the scenario with only the variants that have the given values.

    With `one_factor`, a value other than the base's leaves all other factors at the base. Any scenario can be a chain.
    """
    Chain.of(variant)
    chain = {name: (value,) for name, value in variant.items() if is_chain_key(name)}
    if chain == {RUNS: ("1",)} and RUNS not in scenario.variants:
        chain = {}
    variant = without_chain(variant)
    for name, value in variant.items():
        if value not in scenario.variants.get(name, ()):
            known = "; ".join(f"{name} = {' | '.join(values)}" for name, values in scenario.variants.items())
            raise UsageError(
                f"{scenario.name} has no variant {name}={value}",
                hint=f"its variants are {known}" if known else "it has no variants",
            )
    variants = scenario.variants
    if scenario.one_factor and any(value != variants[name][0] for name, value in variant.items()):
        variants = {name: values[:1] for name, values in variants.items()}
    narrowed = variants | {name: (value,) for name, value in variant.items()} | chain
    return scenario.model_copy(update={"variants": narrowed})


def _distinct(scenario: Scenario, narrowed: list[Scenario]) -> list[Scenario]:
    """Return a scenario once per distinct narrowing; only the whole one where that was chosen."""
    distinct = {tuple(each.variants.items()): each for each in narrowed}
    whole = distinct.get(tuple(scenario.variants.items()))
    return [scenario] if whole else list(distinct.values())


def _match(glob: str, scenario: Scenario) -> tuple[bool, bool]:
    """Return whether `glob` matches a scenario, and whether it may select that: not every glob selects one on request.

    Such a scenario is selected by its path, or where its family is spelled out, without a wildcard.
    """
    family = _family(scenario.name)
    if glob.startswith(_TAG):
        tag = glob.removeprefix(_TAG)
        matches, is_spelled_out = any(fnmatchcase(each, tag) for each in scenario.tags), tag == family
    else:
        is_path = glob.endswith(".py") and Path(glob).resolve() == scenario.path.resolve()
        matches = is_path or fnmatchcase(scenario.name, _as_name(glob))
        is_spelled_out = is_path or _family(_as_name(glob)) == family
    return matches, matches and (is_spelled_out or not scenario.on_request)


def _as_name(glob: str) -> str:
    """Return the glob for names that a path such as scenarios/family/script.py stands for."""
    return glob.removeprefix("./").removeprefix("scenarios/").removesuffix(".py")


def _family(name: str) -> str:
    return name.rpartition("/")[0]


def _no_match(glob: str, scenarios: Sequence[Scenario], words: Sequence[str]) -> UsageError:
    """Return the error for a glob that selects nothing, with what was probably meant: of `words` it is the first."""
    if on_request := sorted({f"{_family(scenario.name)}/*" for scenario in scenarios if any(_match(glob, scenario))}):
        return UsageError(
            f"only scenarios that run on request match {glob!r}",
            hint=f"ask for them by family: {', '.join(on_request)}",
        )
    if glob.startswith(_TAG):
        tags = sorted({tag for scenario in scenarios for tag in scenario.tags})
        near = [_TAG + tag for tag in difflib.get_close_matches(glob.removeprefix(_TAG), tags)]
        known = f"known tags are {', '.join(tags)}"
    else:
        families = sorted({_family(scenario.name) for scenario in scenarios})
        meant = {f"{family}/*": f"{family}/*" for family in families}
        for scenario in scenarios:
            meant[scenario.name] = meant[scenario.name.rpartition("/")[2]] = scenario.name
        near = [meant[name] for name in difflib.get_close_matches(_as_name(glob), meant, cutoff=_CLOSE)]
        what, instead = ("", "") if near else probably_meant(words)
        if what:
            return UsageError(f"{words[0]} is {what}, not the name of a test", hint=f"did you mean {instead}?")
        known = f"the families are {', '.join(families)}"
    remedy = f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else known
    return UsageError(f"no scenario matches {glob!r}", hint=remedy)


def variants_of(scenario: Scenario, chain: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """Return every combination of the scenario's variants; an empty one if it has none.

    With `one_factor`: the base, which has the first value of each, then the base with each other value in turn. With a
    `chain`, each is that chain. Raises UsageError for a chain of a command.
    """
    if chain and scenario.command is not None:
        hint = "leave out --runs, --vary and --cache"
        raise UsageError(f"{scenario.name}: only a script can be run several times with shared caches", hint=hint)
    choices = scenario.variants | {name: (value,) for name, value in (chain or {}).items()}
    if scenario.one_factor:
        base = {name: values[0] for name, values in choices.items()}
        return [base, *(base | {name: value} for name, values in choices.items() for value in values[1:])]
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


def variant_environ(variant: dict[str, str]) -> dict[str, str]:
    """Return the environment variables that tell a script its variant: {"op": "mm"} as WHICHTORCH_OP=mm."""
    return {VARIABLE_PREFIX + name.upper(): value for name, value in without_chain(variant).items()}


def expected(scenario: Scenario, variant: dict[str, str], axes: Mapping[str, str]) -> Expectation | None:
    """Return the first line of the scenario's `expect` that applies, if any.

    `axes` are those of a request or an environment: torch and python are versions. A pre-release counts as the release
    it leads to, so that "<2.12" leaves out the nightlies of 2.12; a local part such as +cpu never matters. Nor does a
    patch: what it changes is to be seen.
    """
    for line in scenario.expect:
        if (
            in_specifier(axes["torch"], line.torch, as_final=True)
            and in_specifier(axes["python"].rstrip("t"), line.python, as_final=True)
            and fnmatchcase(axes["build"], line.build or "*")
            and fnmatchcase(axes["config"], line.config or "*")
            and line.variant.items() <= variant.items()
        ):
            return line
    return None


def is_as_expected(outcome: Outcome, line: Expectation | None) -> bool:
    """Return whether a header's line expects an outcome; without a line, `pass` is expected.

    A skip never contradicts a header: the script says that it does not apply here.
    """
    return outcome in {line.outcome if line else Outcome.PASS, Outcome.SKIP}
