#!/usr/bin/env python
"""Reads records and writes a summary; fails in a converter."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import io
import json
import re
import sys
import time

RECORDS = """
{"id": 1, "size": "12 KiB", "tags": ["x"]}
{"id": 2, "size": "3 MiB", "tags": []}
{"id": 3, "size": "n/a", "tags": ["y", "z"]}
"""
UNITS = {"B": 1, "KiB": 1024, "MiB": 1024 * 1024}
Record = collections.namedtuple("Record", "id size tags")


class ConversionError(ValueError):
    """A size that is none."""

    def __init__(self, text: str) -> None:
        super().__init__(f"no size: {text}")
        self.text = text


@contextlib.contextmanager
def timed(name: str):
    started = time.perf_counter()
    try:
        yield
    finally:
        print(name, round(time.perf_counter() - started), file=sys.stdout)


def to_bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+) (\w+)", text)
    if found is None:
        raise ConversionError(text)
    number, unit = found.groups()
    return int(number) * UNITS[unit]


class Reader:
    def __init__(self, stream: io.TextIOBase, strict: bool = True) -> None:
        self.stream = stream
        self.strict = strict
        self.seen = 0

    async def lines(self):
        for line in self.stream:
            await asyncio.sleep(0)
            if line.strip():
                self.seen += 1
                yield line

    async def read(self) -> list[Record]:
        found = []
        async for line in self.lines():
            data = json.loads(line)
            found.append(Record(data["id"], to_bytes(data["size"]), tuple(data["tags"])))
        return found


class Summary:
    def __init__(self) -> None:
        self.total = 0
        self.by_tag = collections.Counter()

    def add(self, record: Record) -> Summary:
        self.total += record.size
        self.by_tag.update(record.tags)
        return self

    def __str__(self) -> str:
        return f"{self.total} bytes, {dict(self.by_tag)}"


async def main() -> None:
    reader = Reader(io.StringIO(RECORDS), strict=False)
    summary = Summary()
    with timed("reading"):
        for record in await reader.read():
            summary.add(record)
    print(summary, reader.seen)


if __name__ == "__main__":
    asyncio.run(main())
