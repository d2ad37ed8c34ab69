"""The trials that were made, a line of JSON each: what was tried once is not run again, whatever ended the tool."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from whichtorch.matrix.diagnosis.tracebacks import CodeFrame
from whichtorch.matrix.fix.trial import Effect, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def content_key(question: str, files: Mapping[str, str | None]) -> str:
    """Return the key of a trial: what is asked (script, environment, failure), and the files that differ."""
    text = json.dumps([question, sorted(files.items())])
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:20]


class Journal:
    """Trials by their keys, in a file that is appended to; a line that a kill tore is left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._trials: dict[str, Trial] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                fields = json.loads(line)
                frames = tuple(CodeFrame(**frame) for frame in map(_renamed, fields.pop("frames")))
                key = fields.pop("key")
                self._trials[key] = Trial(**{**fields, "effect": Effect(fields["effect"])}, frames=frames)
            except (ValueError, KeyError, TypeError):
                continue

    def get(self, key: str) -> Trial | None:
        """Return the trial of a key, None where it was not made."""
        return self._trials.get(key)

    def add(self, key: str, trial: Trial) -> None:
        """Keep a trial; it is on disk when this returns."""
        self._trials[key] = trial
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._is_torn() + json.dumps({"key": key, **asdict(trial)}) + "\n")

    def _is_torn(self) -> bool:
        content = self._path.read_bytes()[-1:] if self._path.exists() else b""
        return content not in {b"", b"\n"}


def _renamed(frame: dict[str, object]) -> dict[str, Any]:
    """Return a frame with the names of today: a file was once called a path."""
    return {"file" if name == "path" else name: value for name, value in frame.items()}
