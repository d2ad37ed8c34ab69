"""What people do to a command: interrupt it, suspend it, give it twice, move its state folder, close the terminal."""

import os
import pty
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from functools import partial

import psutil

from bench.faults.fault import Fault, Moment, NotHereError
from bench.faults.ground import ALL, COMMANDS, SMALL, BrokenError, Command, Fields, Ground, matrix

# who may read everything, such as a Python in the home of root, but write to nothing
READER = "+dac_read_search"
IDS = ("--reuid=65534", "--regid=65534", "--clear-groups")
AS_NOBODY = ("setpriv", *IDS, f"--inh-caps={READER}", f"--ambient-caps={READER}")
TIMED = matrix("timed.py", "hangs.py", "tree.py", torch="9.2.0")
TIMED_SCRIPT = "# /// scenario\n# timeout = 12\n# ///\nNOTE\nimport time\ntime.sleep(6)\n"


def interrupted(
    signals: tuple[signal.Signals, ...], command: Command, fields: Fields, ground: Ground, moment: Moment
) -> None:
    """Send signals at a random moment; the command ends with 130 and what it has is kept."""
    calm = fields.calm(command)
    ground.prepare(command)
    process = ground.start(command.words)
    time.sleep(moment.dice.uniform(0.3, 0.9) * calm.seconds)
    for number in signals:
        process.send_signal(number)
        time.sleep(moment.dice.uniform(0.0, 0.3))
    ended = ground.ended(process)
    by_signal = {-number for number in signals}  # before the tool could say anything, or while it wrote its last line
    if ended.code not in {130, calm.code, *by_signal}:
        raise BrokenError(f"exit code {ended.code}: {ended.output[-1000:]}")
    if "Traceback (most" in ended.output and ended.code != -signal.SIGINT:
        raise BrokenError(f"a traceback: {ended.output[-1500:]}")
    ground.wait_until_quiet()
    ground.check_verdicts(calm)
    ground.check_recovery(command, calm)


def suspended(seconds: float, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Stop all processes of a command for longer than a script's timeout, as a laptop does; let them go on."""
    ground.user.script("timed.py", TIMED_SCRIPT)
    process = ground.start(TIMED.words)
    while not ground.user.runs("timed.py") and process.poll() is None:
        time.sleep(0.02)
    time.sleep(moment.dice.uniform(0.0, 4.0))
    stopped = [psutil.Process(process.pid), *ground.processes()]
    for each in stopped:
        with suppress(psutil.Error):
            each.suspend()
    time.sleep(seconds)
    for each in stopped:
        with suppress(psutil.Error):
            each.resume()
    ended = ground.ended(process)
    ground.check_line(ended)
    for record in ground.records():
        outcome = record["attempt"]["outcome"]
        if outcome not in {"error", "slow", "hang" if record["scenario"] == "hangs.py" else "pass"}:
            raise BrokenError(f"{record['scenario']} is {outcome}: {ended.output[-800:]}")
    ground.wait_until_quiet()
    ground.check_left()


def lost_terminal(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Close the terminal that a command runs in."""
    calm = fields.calm(ALL)
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *ground.user.command(*ALL.words)],
        cwd=ground.user.folder,
        env=ground.user.environ,
        stdin=end,
        stdout=end,
        stderr=end,
    )
    os.close(end)
    time.sleep(moment.dice.uniform(0.3, 0.9) * calm.seconds)
    os.close(terminal)
    process.wait(60)
    ground.wait_until_quiet()
    ground.check_verdicts(calm)
    ground.check_recovery(ALL, calm)


def at_once(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Give a command three times at once in one state folder."""
    calm = fields.calm(ALL)
    files = [ground.user.folder.parent / f"output{number}.txt" for number in range(3)]
    processes = []
    for file in files:
        with file.open("wb") as output:
            command = ground.user.command(*(word for word in ALL.words if word not in {"--json", "result.json"}))
            processes.append(
                subprocess.Popen(command, cwd=ground.user.folder, env=ground.user.environ, stdout=output, stderr=output)
            )
    for process, file in zip(processes, files, strict=True):
        code = process.wait(300)
        said = file.read_text(errors="replace")
        if code != calm.code or "Traceback" in said:
            raise BrokenError(f"exit code {code}: {said[-1500:]}")
    ground.check_verdicts(calm)
    ground.check_recovery(ALL, calm, may_lose=True)  # a cell may have been run by each of them


def moved(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Move the state folder, with all that it knows."""
    calm = fields.calm(SMALL)
    ground.give(SMALL.words)
    runs = ground.user.runs("fails.py")
    new = ground.user.folder / "elsewhere"
    shutil.move(ground.state, new)
    ground.user.environ["WHICHTORCH_HOME"] = str(new)
    ground.check_recovery(SMALL, calm)
    if ground.user.runs("fails.py") != runs:
        raise BrokenError("what was known was run again")
    ended = ground.give((*SMALL.words, "--fresh"))
    ground.check_line(ended, calm.code)
    if ground.answer(SMALL) != calm.answer:
        raise BrokenError(f"--fresh finds {ground.answer(SMALL)}: {ended.output[-1000:]}")


def of_another(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Give a command in a state folder that belongs to another user."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        raise NotHereError("only root can become another user, by setpriv")
    if subprocess.run([*AS_NOBODY, "true"], check=False, capture_output=True).returncode:
        raise NotHereError("setpriv may not give another user the right to read")
    calm = fields.calm(SMALL)
    ground.give(SMALL.words)
    before = {path: path.stat().st_mtime_ns for path in ground.state.rglob("*")}
    ended = subprocess.run(
        [*AS_NOBODY, *ground.user.command(*SMALL.words)],
        cwd=ground.user.folder,
        env=ground.user.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if ended.returncode != 3 or "cannot write to" not in ended.stderr:
        raise BrokenError(f"exit code {ended.returncode}: {ended.stdout[-500:]} {ended.stderr[-1000:]}")
    if before != {path: path.stat().st_mtime_ns for path in ground.state.rglob("*")}:
        raise BrokenError("it was changed")
    ground.check_recovery(SMALL, calm)


def deleted(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Delete the state folder while a command runs."""
    calm = fields.calm(ALL)
    process = ground.start(ALL.words)
    time.sleep(moment.dice.uniform(0.3, 0.9) * calm.seconds)
    shutil.rmtree(ground.state, ignore_errors=True)
    ended = ground.ended(process)
    if "Traceback" in ended.output:
        raise BrokenError(f"a traceback: {ended.output[-1500:]}")
    shutil.rmtree(ground.state, ignore_errors=True)
    ground.check_recovery(ALL, calm)


INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
FAULTS = [
    *(
        Fault("people", f"{name}, of `{command}`", partial(interrupted, signals, COMMANDS[command]), at_moments=True)
        for name, signals, command in (
            ("Ctrl-C", (INT,), "matrix"),
            ("Ctrl-C twice", (INT, INT), "matrix"),
            ("Ctrl-C", (INT,), "bisect"),
            ("Ctrl-C twice", (INT, INT), "fix"),
            ("Ctrl-C three times", (INT, INT, INT), "triage"),
            ("SIGTERM", (TERM,), "matrix"),
            ("SIGHUP", (HUP,), "matrix"),
        )
    ),
    Fault("people", "a closed terminal", lost_terminal, at_moments=True),
    Fault("people", "a command suspended for longer than its timeouts", partial(suspended, 20.0), at_moments=True),
    Fault("people", "a command suspended for ten minutes", partial(suspended, 600.0)),
    Fault("people", "a command given three times at once", at_once),
    Fault("people", "a state folder that was moved", moved),
    Fault("people", "a state folder of another user", of_another),
    Fault("people", "a state folder that is deleted meanwhile", deleted, at_moments=True),
]
