"""`whichtorch answer`: whether what a bug report says is true, in which releases, and since when."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from whichtorch.base.errors import UsageError
from whichtorch.base.option import argument, group, json_output, max_time, option, output_file
from whichtorch.cli import command
from whichtorch.cli.command import Display, Exit
from whichtorch.matrix.options import RunOptions, Storage, jobs_option, sandbox_option
from whichtorch.process.sandbox import Sandbox


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """The options of `answer`."""

    report: str = argument("REPORT", "A bug report: Markdown, or GitHub's JSON of an issue; - for standard input.")
    newest: str = option(default="latest", metavar="VERSION", help="The newest torch to look at.")
    run: RunOptions = group(RunOptions, "timeout", "memory", "fresh")
    sandbox: Sandbox = sandbox_option(default=Sandbox.BUBBLEWRAP)
    jobs: int | None = jobs_option()
    max_seconds: float | None = max_time(panel="How it runs")
    storage: Storage = group(Storage)
    json_file: Path | None = json_output()
    comment: Path | None = output_file(
        "--comment", help="Write the answer as a comment in Markdown; - for standard output."
    )
    display: Display = group(Display)


def answer(options: AnswerOptions) -> Exit:
    """Say whether a bug report is true, in which releases, since when.

    The script is taken from the report's blocks; what is added to it is told. The answer is one of: reproduces, fixed
    since, does not reproduce, another failure, needs hardware, needs information, refused as unsafe. Exit code: 0
    answered; 4 not known; 2 wrong usage; 3 nothing can be installed, or no sandbox works here; 130 interrupted.
    """
    from whichtorch.answer.answering import Answering, AnswerRequest
    from whichtorch.answer.report import read_report
    from whichtorch.process.sandbox import require_sandbox
    from whichtorch.reports.answer_text import answer_blocks, answer_lines
    from whichtorch.reports.document import markdown

    report = read_report(_content(options.report))
    if options.sandbox is not Sandbox.OFF:
        require_sandbox()
    home = command.state_folder()
    request = AnswerRequest(
        report=report,
        home=home,
        newest=options.newest,
        max_seconds=options.max_seconds,
        options=replace(options.run, sandbox=options.sandbox),
        jobs=options.jobs,
    )
    os.environ["UV_NO_BUILD"] = "1"  # to build a source distribution runs its code, which may be anybody's
    cache = options.storage.cache(home)
    with command.resumable(options.max_seconds):
        found = Answering(request=request, cache=cache, show=options.display.progress).answer()
    command.write_json(options.json_file, found)
    if options.comment:
        command.write_lines(options.comment, markdown(answer_blocks(found)))
    options.display.say(answer_lines(found))
    return Exit.GOOD if found.is_answer else Exit.UNANSWERED


def _content(name: str) -> bytes:
    """Return the content of a file, or of standard input. Raises UsageError."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the report {name}: {error.strerror}") from None
