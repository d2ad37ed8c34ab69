"""`whichtorch report`: pages and files about a stored run, for people and for machines."""

from pathlib import Path
from typing import Annotated

import typer

from matrix.cli.session import Exit, called, check_folders_of, write_json, write_lines
from matrix.privacy.redaction import Redactor
from matrix.records import store, stored_runs

OUTPUT = Path("output")  # where reports go for which no file is named


def report(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Its id or the beginning of it, name, latest, day, or folder.")
    ] = "latest",
    baseline: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="What changed since this run? [default: the last with half its cells]"),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the page, DIR/index.html.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write Markdown, for an issue or a job summary.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")] = None,
) -> None:
    """Make the reports of a stored run: by default all of them, of the latest run, in the folder output.

    They are made from the records alone: at any time, and of a run from another machine, too. Exit code: 0; 2 no
    such run, or nowhere to write.
    """
    from reports.bisection_markdown import bisection_markdown
    from reports.dossier import told
    from reports.junit import junit_xml
    from reports.markdown import markdown_lines
    from reports.page import html as page
    from reports.table import short

    if html or markdown_file or junit or json_file:
        check_folders_of(html, markdown_file, junit, json_file)
    else:
        html, markdown_file = OUTPUT, OUTPUT / "report.md"
        junit, json_file = OUTPUT / "junit.xml", OUTPUT / "result.json"
    home = store.state_folder()
    story = told(stored_runs.find(run, home), home, stored_runs.find(baseline, home) if baseline else None)
    written = []
    if html:
        html.mkdir(exist_ok=True)
        text = page.page(
            story.stored,
            comparison=story.comparison,
            nights=story.nights,
            bisections=story.bisections,
            called=called,
        )
        (html / "index.html").write_text(text, encoding="utf-8")  # of stored records alone: nothing to redact
        written.append(html / "index.html")
    if markdown_file:
        lines = markdown_lines(story.stored, called("matrix"), story.comparison)
        if story.stored.result.run.kind == "bisect" and story.bisections:
            lines = bisection_markdown(story.bisections[0], story.stored.file)
        write_lines(markdown_file, lines)
        written.append(markdown_file)
    if junit:
        junit.write_bytes(Redactor.of_this_machine().data(junit_xml(story.stored, called("matrix"))))
        written.append(junit)
    if json_file:
        write_json(json_file, story.stored.result)
        written.append(json_file)
    for path in written:
        print(f"wrote {short(path)}")
    raise typer.Exit(Exit.GOOD)
