"""Damage to what is installed: it is made again, or told; it never becomes a verdict."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.faults.fault import Fault, Moment
from bench.faults.ground import SMALL, BrokenError, Fields, Ground
from tests.wheels import serve

Damage = Callable[[Ground], None]


def _each(ground: Ground, pattern: str) -> list[Path]:
    found = sorted((ground.state / "envs").glob(pattern))
    if not found:
        raise BrokenError(f"no environment has {pattern}")
    return found


def without(pattern: str, ground: Ground) -> None:
    for path in _each(ground, pattern):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def emptied(pattern: str, ground: Ground) -> None:
    for path in _each(ground, pattern):
        path.unlink()  # first: the file is a hard link to uv's cache
        path.write_text("")


def cut(ground: Ground) -> None:
    """Truncate files that uv's cache and the environments share."""
    for path in _each(ground, "*/venv/lib/python*/site-packages/torch/__init__.py"):
        path.write_text(path.read_text()[:100])


def locks_left(ground: Ground) -> None:
    for path in _each(ground, "*/lock.txt"):
        key = path.parent.name
        (ground.state / "envs" / ".locks" / key).write_text("4194303")
        mark = {"owner": "0:4194303:1:x", "reserved": 10**15}
        (ground.state / "envs" / ".marks" / f"{key}.4194303").write_text(json.dumps(mark))
        (ground.state / "envs" / ".marks" / f"{key}.4194302").write_text("garbage")
    (ground.state / "cache" / "uv" / ".lock").touch()


def other_version(ground: Ground) -> None:
    """Change files as a tool of another version would write them."""
    for path in [*_each(ground, "*/installation.json"), *_each(ground, "*/configs/*.json")]:
        content = json.loads(path.read_text())
        content["of_the_future"] = {"schema": 99}
        path.write_text(json.dumps(content))
    for path in (ground.state / "index").glob("*.sqlite"):
        path.write_bytes(path.read_bytes()[:60] + (99).to_bytes(4, "big") + path.read_bytes()[64:])  # user_version


def strike(damage: Damage, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Damage the environments; give the command again, with what is known and then without."""
    calm = fields.calm(SMALL)
    ground.give(SMALL.words)
    damage(ground)
    ground.check_recovery(SMALL, calm)
    ended = ground.give((*SMALL.words, "--fresh"))
    ground.check_line(ended)
    ground.check_verdicts(calm)
    if ended.code not in {calm.code, 3}:
        raise BrokenError(f"--fresh ends with {ended.code}: {ended.output[-1000:]}")


def wheel(spoil: Callable[[Path, Ground], None], fields: Fields, ground: Ground, moment: Moment) -> None:
    """Serve a spoiled wheel; then a whole one."""
    calm = fields.calm(SMALL)
    folder = ground.user.folder.parent / "wheels"
    shutil.copytree(fields.index.folder, folder)
    with serve(folder) as index:
        ground.user.environ["UV_DEFAULT_INDEX"] = index.url
        spoiled = next(folder.glob("torch-9.2.0-*"))
        whole = spoiled.read_bytes()
        ground.index = index
        spoil(spoiled, ground)
        ended = ground.give(SMALL.words)
        ground.check_line(ended, 1)  # the other release still fails
        ground.check_verdicts(calm)
        if "unbuildable" not in ended.output:
            raise BrokenError(f"said: {ended.output[-800:]}")
        spoiled.write_bytes(whole)
        index.digests.clear()
        ground.check_recovery(SMALL, calm)


def _truncated(path: Path, ground: Ground) -> None:
    path.write_bytes(path.read_bytes()[:-400])


def _garbage(path: Path, ground: Ground) -> None:
    path.write_bytes(b"PK\x03\x04" + bytes(5000))


def _wrong_hash(path: Path, ground: Ground) -> None:
    ground.index.digests[path.name] = "0" * 64


def _fault(name: str, damage: Damage) -> Fault:
    return Fault("cache", name, partial(strike, damage))


TORCH = "*/venv/lib/python*/site-packages/torch"
FAULTS = [
    Fault("cache", "a truncated wheel", partial(wheel, _truncated)),
    Fault("cache", "a wheel of zero bytes", partial(wheel, _garbage)),
    Fault("cache", "a wheel with a wrong hash", partial(wheel, _wrong_hash)),
    _fault("an environment without a file of torch", partial(without, f"{TORCH}/version.py")),
    _fault("an environment without torch", partial(without, TORCH)),
    _fault("an environment with an empty file of torch", partial(emptied, f"{TORCH}/version.py")),
    _fault("a truncated file, in uv's cache, too", cut),
    _fault("an environment without its interpreter", partial(without, "*/venv/bin/python")),
    _fault("an environment without its folder", partial(without, "*/venv")),
    _fault("a half-evicted environment", partial(without, "*/complete")),
    _fault("locks and marks of the dead left behind", locks_left),
    _fault("a cache shared with another version", other_version),
]
