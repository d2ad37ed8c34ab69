"""A run as JUnit XML, for CI services and whatever else shows test results.

An environment is a suite, a cell is a case:

- `fail`, `hang`, `crash`, `oom`, and `slow` in some attempts only, are a `<failure>` with the outcome as its type. A
  hang is always one:
  Bazel (#3763) and meson (#13795) let timeouts pass, and some viewers show an `<error>` as passed
  (dorny/test-reporter #81).
- `unbuildable`, `broken` and `error` are an `<error>`: nothing was learnt about torch.
- `skip`, `vacuous` and `slow` are `<skipped>`: no verdict. A slow cell did not pass, and is no evidence of a hang.
- A red cell that its scenario's header expects is a known issue. It must not turn a viewer red, so it is a plain case
  with the properties `expected`, `outcome`, `known` (the header's reason) and `signature`.
- A pass that the header does not expect is a pass with the properties `expected` (false) and `known`. A pass whose
  conditions nobody could observe has the property `doubt`.
- A cell whose attempts disagree has the property `flaky`. Its outcome decides its element, as for any other cell.

So there is a `<failure>` where the exit code of `matrix` is 1, and an `<error>` but no failure where it is 3.

Class and name identify a case. GitLab looks at nothing else, and of cases that share both it keeps one
(JuliaTesting/TestReports.jl #43). Jenkins takes what is before the last dot of the class for a package. So the class
is the environment, then the scenario's family. The only nightly of its kind in a run is called `nightly` there, so
that a viewer can follow its cells from night to night.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from whichtorch.base.grouping import counted
from whichtorch.model import NO_PATCH, Cell, Environment, Outcome, Result
from whichtorch.records.compare.comparison import stream
from whichtorch.reports import cell_text
from whichtorch.reports.document import first_and_last_lines, one_line, shown_path, visible

if TYPE_CHECKING:
    from whichtorch.records.store import StoredRun
    from whichtorch.watch.watched_run import WatchedRun

NAME = 10_000  # characters of a name: two that differ at their ends stay two
SCRIPTS = "script"  # family of what is no scenario of the suite


def junit_xml(stored: StoredRun, command: str) -> bytes:
    """Return the whole report; `command` is how the user calls `matrix`."""
    result = stored.result
    root = ET.Element("testsuites", name=one_line(f"whichtorch {result.run.name or result.run.id}"))
    streams = Counter(map(stream, result.environments))
    for environment in result.environments:
        # the same from run to run, and unique in this one
        class_ = stream(environment) if streams[stream(environment)] == 1 else environment.label
        own = [cell for cell in result.cells if cell.environment == environment.id]
        suite = ET.SubElement(root, "testsuite", name=one_line(environment.label))
        # the strictest readers accept no offset
        suite.set("timestamp", one_line(result.run.started.removesuffix("+00:00")))
        _add_properties(suite, _facts(environment, result))
        suite.extend(_case(cell, environment, class_, stored, command) for cell in own)
        _count(suite, sum(cell.seconds for cell in own))
    _count(root, result.run.seconds)
    return _written(root)


def watched_xml(seen: WatchedRun) -> bytes:
    """Return a report with one case, of a command that was watched."""
    root = ET.Element("testsuites", name="whichtorch run")
    suite = ET.SubElement(root, "testsuite", name="whichtorch run")
    case = ET.SubElement(suite, "testcase", name=one_line(shlex.join(seen.command)), classname="whichtorch.run")
    case.set("time", f"{seen.seconds:.3f}")
    if tag := seen.outcome.row.junit:
        message = seen.hang.sentence if seen.hang else f"exit code {seen.exit_code}"
        element = ET.SubElement(case, tag, type=str(seen.outcome), message=one_line(message))
        element.text = visible("\n\n".join(seen.hang.diagnosis.stacks if seen.hang and seen.hang.diagnosis else ()))
    _count(suite, seen.seconds)
    _count(root, seen.seconds)
    return _written(root)


def element_of(cell: Cell) -> str | None:
    """Return the element that says the outcome of a cell; None for a plain case, which viewers show as passed."""
    if cell.is_red:
        return None if cell.expected else "failure"
    return cell.outcome.row.junit or None


def _case(cell: Cell, environment: Environment, class_: str, stored: StoredRun, command: str) -> ET.Element:
    is_script = cell_text.is_script(cell.runnable)
    family = SCRIPTS if is_script else cell.scenario.rpartition("/")[0] or cell.scenario
    family = cell.scenario.partition("::")[0].removesuffix(".py").replace("/", ".") if cell.command else family
    case = ET.Element(
        "testcase", name=one_line(cell.name, NAME), classname=one_line(f"{class_}.{family.replace('.', '_')}", NAME)
    )
    case.set("time", f"{cell.seconds:.3f}")
    _add_properties(case, _remarks(cell))
    if tag := element_of(cell):
        element = ET.SubElement(case, tag, type=str(cell.outcome), message=one_line(_what(cell)))
        element.text = visible("\n".join(_story(cell, environment, stored, command)))
    return case


def _what(cell: Cell) -> str:
    """Return what happened, or, where nothing more is known, what the outcome means."""
    return cell_text.summary(cell, cell.outcome.row.meaning)


def _facts(environment: Environment, result: Result) -> dict[str, str | None]:
    """Return the properties of a suite. The machine's name is not among them, because reports are published."""
    commit = environment.fingerprint.git_version
    done, planned = len(result.cells), result.run.planned
    missing = f"{done} of {counted(planned, 'cell')}" if done < planned else "the run did not come to its end"
    return {
        "torch": environment.torch,
        "python": environment.python,
        "build": environment.build,
        "config": environment.config,
        "patch": None if environment.patch == NO_PATCH else environment.patch,
        "environment": environment.id,
        "git_version": str(commit) if commit else None,
        "run": result.run.id,
        "incomplete": None if result.is_complete else missing,
    }


def _remarks(cell: Cell) -> dict[str, str | None]:
    """Return the properties of a case; none for a plain pass."""
    if cell.outcome is Outcome.PASS and cell.expected and not cell.flaky and not cell.doubt:
        return {}
    return {
        "outcome": str(cell.outcome),
        "expected": "true" if cell.expected else "false",
        "known": cell.known or None,
        "signature": cell.signature,
        "what": cell.what if cell.what != cell.signature else None,
        "flaky": cell.flaky,
        "doubt": cell.reason if cell.doubt else None,
    }


def _story(cell: Cell, environment: Environment, stored: StoredRun, command: str) -> Iterator[str]:
    """Yield what happened, the ends of what the cell wrote, its files, and the command that runs it again."""
    yield one_line(_what(cell))
    yield from (one_line(detail) for detail in cell_text.detail_lines(cell))
    log = cell_text.log_of(stored, cell)
    if lines := first_and_last_lines(log or stored.log(environment)):
        yield from ("", *lines, "")
    if path := log or environment.log:
        yield f"log: {shown_path(path)}"
    if stacks := cell_text.stacks_of(stored, cell):
        yield f"stacks: {shown_path(stacks)}"
    yield f"rerun: {cell_text.rerun_command(cell, environment, command)}"


def _add_properties(parent: ET.Element, facts: dict[str, str | None]) -> None:
    if known := {name: value for name, value in facts.items() if value is not None}:
        properties = ET.SubElement(parent, "properties")
        for name, value in known.items():
            ET.SubElement(properties, "property", name=name, value=one_line(value))


def _written(root: ET.Element) -> bytes:
    ET.indent(root, " ")
    written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _count(parent: ET.Element, seconds: float) -> None:
    """Set how many cases there are below, and of which kind."""
    parent.set("tests", str(len(list(parent.iter("testcase")))))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        parent.set(attribute, str(len(list(parent.iter(tag)))))
    parent.set("time", f"{seconds:.3f}")
