"""Damage to what is stored: the next command reads around it, runs again what it cost, and says so in a line."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.faults.fault import Fault, Moment
from bench.faults.ground import BrokenError, Fields, Ground, matrix
from bench.faults.shim import preloaded

Damage = Callable[[Path, Moment], None]  # given the folder of a run
READERS = (("report",), ("compare", "latest", "latest"), ("explain", "fails.py"))
STAYS = matrix("passes.py", "fails.py", "hangs.py")  # with an attempt that has stacks


def _lines(run: Path, name: str = "records.jsonl") -> tuple[Path, list[bytes]]:
    file = run / name
    return file, file.read_bytes().splitlines(keepends=True)


def torn(run: Path, moment: Moment) -> None:
    file, lines = _lines(run)
    lines[-1] = lines[-1][: moment.dice.randrange(1, len(lines[-1]))]
    file.write_bytes(b"".join(lines))


def garbage(run: Path, moment: Moment) -> None:
    file, lines = _lines(run)
    lines.insert(moment.dice.randrange(len(lines)), moment.dice.randbytes(300).replace(b"\n", b"") + b"\n")
    file.write_bytes(b"".join(lines))


def zeros(run: Path, moment: Moment) -> None:
    for name in ("records", "cells", "environments", "scenarios"):
        with (run / f"{name}.jsonl").open("ab") as file:
            file.write(bytes(4096))


def zeroed(run: Path, moment: Moment) -> None:
    file, lines = _lines(run)
    place = moment.dice.randrange(len(lines))
    lines[place] = bytes(len(lines[place]))
    file.write_bytes(b"".join(lines))


def duplicated(run: Path, moment: Moment) -> None:
    for name in ("records.jsonl", "cells.jsonl", "environments.jsonl"):
        file, lines = _lines(run, name)
        file.write_bytes(b"".join([*lines, moment.dice.choice(lines)]))


def later(run: Path, moment: Moment) -> None:
    file, lines = _lines(run)
    record = json.loads(lines[0]) | {"schema": 99, "key": {"is": "an object by now"}}
    file.write_bytes(b"".join([json.dumps(record).encode() + b"\n", *lines]))


def wrong_types(run: Path, moment: Moment) -> None:
    file, lines = _lines(run)
    strange = [b"null\n", b"[]\n", b'"text"\n', b"{}\n", b"1e999\n", b"[" * 100_000 + b"\n", b'{"a":' * 5000 + b"\n"]
    file.write_bytes(b"".join([*strange, *lines]))


def no_attempts(run: Path, moment: Moment) -> None:
    for folder in (run / "attempts").iterdir():
        shutil.rmtree(folder)


def swapped(first: str, second: str, run: Path, moment: Moment) -> None:
    aside = run / "aside"
    (run / first).rename(aside)
    (run / second).rename(run / first)
    aside.rename(run / second)


def replaced(names: tuple[str, ...], content: bytes | None, run: Path, moment: Moment) -> None:
    """Give files of the state folder another content; None: a folder instead."""
    found = [path for name in names for path in run.parents[1].glob(name)]
    if not found:
        raise BrokenError(f"the state folder has no {names}")
    for path in found:
        path.unlink()
        path.mkdir() if content is None else path.write_bytes(content)


def removed(names: tuple[str, ...], run: Path, moment: Moment) -> None:
    for path in [path for name in names for path in run.parents[1].glob(name)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def strike(damage: Damage, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Damage what a command has stored; let other commands read it; give the command again."""
    calm = fields.calm(STAYS)
    ground.give(STAYS.words)
    (run,) = (ground.state / "runs").iterdir()
    damage(run, moment)
    for words in moment.dice.choice((READERS, ())):  # the index is there already, or knows nothing yet
        ground.check_line(ground.give(words))
    ground.check_recovery(STAYS, calm, may_lose=True)
    for words in READERS:
        ground.check_line(ground.give(words))


def two_clocks(seconds: int, after: int, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Let the clock jump in every process of a command; the next command has the right time."""
    calm = fields.calm(STAYS)
    environ = preloaded(fields.folder) | {"FAULT_CLOCK": str(seconds), "FAULT_AFTER": str(after)}
    ended = ground.give(STAYS.words, environ)
    ground.check_line(ended, calm.code)
    ground.check_verdicts(calm)
    if ground.answer(STAYS) != calm.answer:
        raise BrokenError(f"found {ground.answer(STAYS)}")
    ground.check_recovery(STAYS, calm)


def _fault(name: str, damage: Damage) -> Fault:
    return Fault("records", name, partial(strike, damage))


INDEX = ("index/*.sqlite",)
ENVIRONMENT = ("envs/*/installation.json", "envs/*/lock.txt", "envs/*/configs/*.json", "cache/*.json")
FAULTS = [
    _fault("a torn last line", torn),
    _fault("a line of garbage", garbage),
    _fault("4096 zero bytes at the end of each file", zeros),
    _fault("a line of zero bytes", zeroed),
    _fault("a duplicated line in each file", duplicated),
    _fault("a record of a later schema", later),
    _fault("lines that are no records", wrong_types),
    _fault("the attempts' folders deleted", no_attempts),
    _fault("two files swapped", partial(swapped, "records.jsonl", "cells.jsonl")),
    _fault("environments and scenarios swapped", partial(swapped, "environments.jsonl", "scenarios.jsonl")),
    _fault("an empty run.json", partial(replaced, ("runs/*/run.json",), b"")),
    _fault("a run.json that is a folder", partial(replaced, ("runs/*/run.json",), None)),
    _fault("no environments.jsonl", partial(removed, ("runs/*/environments.jsonl",))),
    _fault("garbage for an index", partial(replaced, INDEX, b"garbage" * 1000)),
    _fault("an empty index", partial(replaced, INDEX, b"")),
    _fault("folders for indexes", partial(replaced, INDEX, None)),
    _fault("empty files of an environment", partial(replaced, ENVIRONMENT, b"")),
    _fault("garbage for files of an environment", partial(replaced, ENVIRONMENT, b'{"a": \xff')),
    _fault("all runs removed", partial(removed, ("runs",))),
    Fault("records", "a clock an hour behind", partial(two_clocks, -3600, 0)),
    Fault("records", "a clock that jumps back by an hour", partial(two_clocks, -3600, 200)),
    Fault("records", "a clock that jumps ahead by a day", partial(two_clocks, 86400, 200)),
]
