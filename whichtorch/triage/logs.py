"""Torch's own logs and traces: what the category of a failure asks for, bounded, as files of the case."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from whichtorch.matrix.variation import NOTES, Variation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from whichtorch.matrix.runner import Runner

COUNTED = "graph_breaks,recompiles"
MOST_BYTES = 1_000_000  # of a file: more is not read by anybody; half of a trace cannot be read
_GRAPH_BREAK = re.compile(r"\[__graph_breaks\].*Graph break\b|\bGraph break in user code at")
_RECOMPILATION = re.compile(r"\[__recompiles(?:_verbose)?\].*Recompiling function")
_INVALID = re.compile(r"Invalid log settings")
_LOGS = "TORCH_LOGS"
VARIABLE = "TORCH_TRACE"  # torch writes its trace into this folder, from 2.3 on


def logged_counts(runs: Runner, limit: float) -> tuple[int, int]:
    """Return how many graph breaks and recompilations torch logs in one run.

    Torch before 2.1 has no such logs: there both are 0.
    """
    lines = runs.run(limit, Variation(variables={_LOGS: COUNTED})).stderr.splitlines()
    return sum(bool(_GRAPH_BREAK.search(line)) for line in lines), sum(map(bool, map(_RECOMPILATION.search, lines)))


def gathered_logs(runs: Runner, names: Sequence[str], limit: float, folder: Path) -> dict[str, str]:
    """Run the script once with the logs that its category needs; return what was kept, by path in the case's folder.

    What this release has no log of that name for is left out. What it traces of its compilations comes along.
    """
    wanted = list(names)
    while wanted:
        run = runs.run(limit, Variation(variables={_LOGS: ",".join(wanted), VARIABLE: NOTES}))
        if not _INVALID.search(run.stderr):
            folder.mkdir(parents=True, exist_ok=True)
            kept = _keep(folder, "torch_logs.txt", run.stderr, f"{_LOGS}={','.join(wanted)}")
            return kept | keep_trace(run.notes, folder)
        known = [name for name in wanted if not re.search(rf"['\"{{, ]{name}['\"}}, ]", run.stderr)]
        wanted = known if len(known) < len(wanted) else wanted[:-1]
    return {}


def _keep(folder: Path, name: str, text: str, what: str) -> dict[str, str]:
    """Write a log, its beginning and its end where it is long; return its entry."""
    if len(text) > MOST_BYTES:
        half = MOST_BYTES // 2
        text = f"{text[:half]}\n[... {len(text) - MOST_BYTES} characters cut here ...]\n{text[-half:]}"
    (folder / name).write_text(text, encoding="utf-8")
    return {f"{folder.name}/{name}": what}


def keep_trace(written: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write torch's traces, texts by path, into a folder; return what each is, by path below the folder's parent."""
    kept: dict[str, str] = {}
    for path, text in sorted(written.items()):
        if not path.endswith(".log") or len(text) > MOST_BYTES:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        trace = folder / (PurePath(path).name if kept else "torch_trace.log")
        trace.write_text(text, encoding="utf-8")
        kept[f"{folder.name}/{trace.name}"] = f"{VARIABLE}, as tlparse reads it"
    return kept
