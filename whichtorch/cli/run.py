"""`whichtorch run`: run a command in the current environment, and say where it hangs."""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError
from whichtorch.base.option import STDOUT, json_output, output_file
from whichtorch.cli import command
from whichtorch.watch.watch_request import WatchRequest

if TYPE_CHECKING:
    from whichtorch.watch.watched_command import Standstill
    from whichtorch.watch.watched_run import SeenHang


@dataclass(frozen=True, kw_only=True)
class RunCommandOptions(WatchRequest):
    """The options of `run`."""

    json_file: Path | None = json_output()
    junit_file: Path | None = output_file("--junit", help="Write JUnit XML.")


def run(options: RunCommandOptions) -> int:
    """Run a command here, and say where it hangs.

    Nothing is installed. The command has your terminal, folder and variables. When all its processes wait for each
    other, or its loop comes back to the same state, stderr gets one sentence that says where, and the stacks.
    Exit code: that of the command, as a shell gives it; 124 if the command was stopped or kept.
    """
    from whichtorch.process.temporary_folders import temporary_folder
    from whichtorch.watch.watched_command import CommandWatch

    if STDOUT in {options.json_file, options.junit_file}:
        raise UsageError("standard output belongs to the command", hint="name a file for --json and --junit")
    hangs: list[SeenHang] = []
    with temporary_folder() as folder:
        end = CommandWatch(options, str(folder)).watch(lambda seen: hangs.append(_report_hang(seen, folder)))
    if not (hangs or options.json_file or options.junit_file):
        return end.exit_code
    from whichtorch.watch.watched_run import WatchedRun

    ended = WatchedRun.of(options.command, end, hangs[-1] if hangs else None)
    command.write_json(options.json_file, ended)
    if options.junit_file:
        from whichtorch.reports.junit import watched_xml

        command.write_bytes(options.junit_file, watched_xml(ended))
    return ended.exit_code


def _report_hang(seen: "Standstill", folder: Path) -> "SeenHang":
    """Say on stderr where a command hangs, with its stacks; on GitHub also as an annotation of the job."""
    from whichtorch.base.redaction import Redactor
    from whichtorch.watch.watched_run import read_hang

    hang, lines = read_hang(seen, folder)
    redact = Redactor.of_this_machine().text
    shown = [f"\nwhichtorch: {hang.headline}", *lines, *(f"note: {note}" for note in hang.notes)]
    with suppress(BrokenPipeError):  # stderr has no reader anymore; the watch goes on
        print(*map(redact, shown), sep="\n", file=sys.stderr, flush=True)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            print(f"::error title=whichtorch::{redact(hang.headline)}", flush=True)
    return hang
