"""The answers of runs, a line of JSON each: what was asked once is not run again, even if the tool was killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from pathlib import Path

Answer = TypeVar("Answer")


class Journal(Generic[Answer]):
    """Answers by their keys, in a file that is appended to; a truncated line is skipped."""

    def __init__(self, path: Path, kind: type[Answer]) -> None:
        self._path, self._adapter = path, TypeAdapter[Any](kind)
        self._answers: dict[str, Answer] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                fields = json.loads(line)
                key = fields.pop("key")
                self._answers[key] = self._adapter.validate_python(fields)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue

    def get(self, key: str) -> Answer | None:
        """Return the answer of a key, None where there is none."""
        return self._answers.get(key)

    def add(self, key: str, answer: Answer) -> None:
        """Keep an answer; it is on disk when this returns."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key} | self._adapter.dump_python(answer, mode="json"))
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._is_torn() + line + "\n")
        self._answers[key] = answer

    def _is_torn(self) -> bool:
        content = self._path.read_bytes()[-1:] if self._path.exists() else b""
        return content not in {b"", b"\n"}
