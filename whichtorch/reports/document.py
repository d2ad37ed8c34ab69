"""Documents from templates: text that stands in a template is markup, text that comes from elsewhere never is."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from whichtorch.reports.shown_text import code_span, escaped, fenced, table_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FOLDER = Path(__file__).parent


def template_environment(folder: Path, fit: Callable[[str], str]) -> jinja2.Environment:
    """Return what reads the templates of a folder; `fit` makes each text from elsewhere safe to show."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: fit(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )


@cache
def _markdown_environment() -> jinja2.Environment:
    environment = template_environment(FOLDER / "templates", lambda text: Markup(escaped(text)))  # noqa: S704
    environment.filters |= {
        "code": lambda text: Markup(code_span(text)),  # noqa: S704
        "fenced": lambda lines, *language: Markup("\n".join(fenced(lines, *language))),  # noqa: S704
        "row": _row,
        "sentence": lambda words: words[:1].upper() + words[1:],
    }
    return environment


def _row(cells: Iterable[str]) -> Markup:
    texts = (cell if isinstance(cell, Markup) else escaped(cell) for cell in cells)
    return Markup(table_row(texts))  # noqa: S704


def markdown_document(name: str, **facts: object) -> list[str]:
    """Return the lines of a document in Markdown."""
    text = _markdown_environment().get_template(f"{name}.md.jinja").render(facts)
    return text.removesuffix("\n").split("\n")
