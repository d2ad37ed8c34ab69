"""The formats of the report on a stored run.

`whichtorch report` has an option for each row of FORMATS, and by default writes all that have a file. What makes a
format is imported when it is called, so that every other command starts as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichtorch.model import Model
    from whichtorch.reports.cell_text import CommandPrefix
    from whichtorch.reports.run_facts import RunFacts

    Content = Iterable[str] | bytes | Model  # lines, a whole file, or what is written as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFormat:
    """A format: the option that asks for it, the file it goes to, and what makes it."""

    name: str  # of the option
    help: str
    file: str = ""  # name in the output folder, where no option names a file; "" for none
    in_folder: bool = False  # the option names a folder for `file`
    is_redacted: bool = False  # it is made from stored records alone, which are redacted
    content: Callable[[RunFacts, CommandPrefix], Content]


def _html(facts: RunFacts, called: CommandPrefix) -> bytes:
    from whichtorch.reports.page.html import page

    return page(facts, called).encode()


def _markdown(facts: RunFacts, called: CommandPrefix) -> Iterable[str]:
    from whichtorch.reports.bisection_text import bisection_blocks
    from whichtorch.reports.document import markdown
    from whichtorch.reports.markdown import markdown_lines

    if facts.stored.result.run.kind == "bisect" and facts.bisections:
        return markdown(bisection_blocks(facts.bisections[0], facts.stored.file))
    return markdown_lines(facts.stored, called("matrix"), facts.comparison)


def _junit(facts: RunFacts, called: CommandPrefix) -> bytes:
    from whichtorch.reports.junit import junit_xml

    return junit_xml(facts.stored, called("matrix"))


def _annotations(facts: RunFacts, _called: CommandPrefix) -> Iterable[str]:
    from whichtorch.reports.annotations import annotation_lines

    return annotation_lines(facts.stored)


_PAGE_HELP = "Write the page, DIR/index.html."
_MARKDOWN_HELP = "Write Markdown, ready for an issue."
FORMATS = (
    ReportFormat(name="html", help=_PAGE_HELP, file="index.html", in_folder=True, is_redacted=True, content=_html),
    ReportFormat(name="markdown", help=_MARKDOWN_HELP, file="report.md", content=_markdown),
    ReportFormat(name="junit", help="Write JUnit XML.", file="junit.xml", content=_junit),
    ReportFormat(
        name="json",
        help="Write the answer as JSON; - for standard output.",
        file="result.json",
        content=lambda facts, _called: facts.stored.result,
    ),
    ReportFormat(name="annotations", help="Write GitHub's annotations of unexpected failures.", content=_annotations),
)
