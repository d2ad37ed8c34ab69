"""`kill -9` of each process that takes part in a command, at random moments."""

import os
import random
import shutil
import signal
import time
from contextlib import suppress
from functools import partial
from importlib.util import find_spec

import psutil

from bench.faults.fault import Fault, Moment, NotHereError, NotStruckError
from bench.faults.ground import ALL, COMMANDS, Command, Fields, Ground
from tests.cli.cluster import two_workers
from whichtorch.base.grouping import grouped

ROLES: dict[str, str] = {  # what the command line of a victim holds
    "the supervisor": "supervisor_program",
    "the fork server": "fork_server.py",
    "a script": "/user/",
    "a script's child": "# worker",
    "uv, as it installs": "/uv ",
}


def is_at_work(words: str, process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        line = process.cmdline()
        if words == ROLES["a script"]:
            return len(line) > 1 and words in line[1] and line[1].endswith(".py") and ".whichtorch" not in line[1]
        return words in " ".join(line) + " "
    return False


def kill_one(words: str, ground: Ground, dice: random.Random) -> bool:
    """Kill a process whose command line has some words; return whether there was one."""
    victims = [each for each in ground.processes() if is_at_work(words, each)]
    with suppress(psutil.Error):
        if words == ROLES["the fork server"]:  # what it has forked has its command line, and is younger
            victims = [
                min(same, key=psutil.Process.create_time) for same in grouped(victims, lambda p: p.ppid()).values()
            ]
        if victims:
            dice.choice(victims).kill()
            return True
    return False


def kill_tool(command: Command, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Kill the tool; its supervisors end what it has started."""
    calm = fields.calm(command)
    ground.prepare(command)
    process = ground.start(command.words)
    time.sleep(moment.dice.uniform(0.0, calm.seconds))
    process.kill()
    process.wait()
    ground.wait_until_quiet()
    ground.check_verdicts(calm)
    ground.check_recovery(command, calm)


def kill_all(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Kill the tool and all supervisors at once: the next command ends what is left."""
    calm = fields.calm(ALL)
    process = ground.start(ALL.words)
    time.sleep(moment.dice.uniform(0.3, 1.0) * calm.seconds)
    for each in (process.pid, *(each.pid for each in ground.processes() if is_at_work("supervisor_program", each))):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    process.wait()
    ground.check_verdicts(calm)
    ground.check_recovery(ALL, calm)


def kill_part(words: str, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Kill a process of a command that goes on; the command ends by itself, and the next one finds the same."""
    calm = fields.calm(ALL)
    process = ground.start(ALL.words)
    since, due = time.monotonic(), moment.dice.uniform(0.0, 0.8 * calm.seconds)
    is_struck = False
    while process.poll() is None and not is_struck:
        is_struck = time.monotonic() - since > due and kill_one(words, ground, moment.dice)
        time.sleep(0.01)
    ended = ground.ended(process)
    ground.check_line(ended)
    ground.check_verdicts(calm)
    ground.check_recovery(ALL, calm)
    if not is_struck:
        raise NotStruckError("the command ended first")


def kill_party(role: str, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Kill a worker or the scheduler of a cluster while a command runs there; then give the command here."""
    if find_spec("distributed") is None:
        raise NotHereError("distributed is not installed")
    calm = fields.calm(ALL)
    with two_workers(ground.user, ground.user.folder.parent / "cluster") as (address, _):
        process = ground.start((*ALL.words, "--executor", address))
        time.sleep(moment.dice.uniform(0.2, 0.8) * calm.seconds)
        assert kill_one(f"whichtorch {role} ", ground, moment.dice)
        ended = ground.ended(process)
    shutil.rmtree(
        ground.user.folder.parent / "tmp" / "dask-scratch-space", ignore_errors=True
    )  # dask's next start does
    ground.check_line(ended, *([calm.code] if role == "worker" else []))  # another worker takes over
    ground.wait_until_quiet()
    ground.check_verdicts(calm)
    ground.check_recovery(ALL, calm)


FAULTS = [
    *(
        Fault("death", f"kill -9 of `{name}`", partial(kill_tool, command), at_moments=True)
        for name, command in COMMANDS.items()
    ),
    Fault("death", "kill -9 of the tool and its supervisors at once", kill_all, at_moments=True),
    *(
        Fault("death", f"kill -9 of {name}", partial(kill_part, words), at_moments=True)
        for name, words in ROLES.items()
    ),
    *(
        Fault("death", f"kill -9 of a cluster's {role}", partial(kill_party, role), at_moments=True)
        for role in ("worker", "scheduler")
    ),
]
