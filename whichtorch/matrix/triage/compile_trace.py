"""What torch traces of a compilation: the trace itself, and its graphs and code where tlparse is there to read it.

tlparse is no dependency: it is looked for beside this Python and on PATH. Written for tlparse 0.4.3.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from whichtorch.matrix.process.temporary_folders import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "TORCH_TRACE"  # torch writes its trace into this folder, from 2.3 on
MOST_BYTES = 1_000_000  # of a trace or a part of it; a longer one is left out, for half of it cannot be read
MOST_PARTS = 40  # of a trace: graphs and pieces of code
PATIENCE = 60  # seconds for tlparse, which takes less than one
_PARTS = re.compile(r"(dynamo_output_graph|fx_graph_runnable|inductor_output_code|\w*graph)(_\w+?)?_(\d+)\.txt")


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
        kept.update(_parts(trace, folder))
    return kept


def _parts(trace: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the graphs and the code of a trace, each a file in the folder, and what it is."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    tool = shutil.which("tlparse", path=beside)
    if tool is None:
        return
    with temporary_folder() as made:
        out = made / "out"
        command = [tool, str(trace), "-o", str(out), "--no-browser", "--plain-text"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        except (OSError, subprocess.SubprocessError):
            return
        matches = ((_PARTS.fullmatch(file.name), file) for file in out.glob("*/*.txt"))
        found = sorted((int(match[3]), match[1], file) for match, file in matches if match)
        for number, kind, file in found[:MOST_PARTS]:
            if file.stat().st_size <= MOST_BYTES:
                name = f"{number:02}_{kind}_{file.parent.name.strip('-_') or '0'}.txt"
                shutil.copyfile(file, folder / name)
                yield f"{folder.name}/{name}", f"{kind.replace('_', ' ')} of compilation {file.parent.name}"
