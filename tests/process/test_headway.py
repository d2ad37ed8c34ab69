"""What counts as getting on, and how long a pause must be to be evidence of a hang."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import PATIENCE
from tests.process.running import begin, headway_of, until
from whichtorch.failures.deadline import PLAIN_LOOK, timeout_outcome
from whichtorch.model import Headway, Outcome
from whichtorch.process import kernel
from whichtorch.process.evidence import headway
from whichtorch.process.evidence.headway import Pauses, Totals, TreeClock, is_work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from whichtorch.process.supervision import Ending

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
SEEN, CONNECTED = pytest.mark.xdist_group("headway"), pytest.mark.xdist_group("connected")  # they share programs
TIMEOUT = 5.0  # seconds: of these a pause of half is evidence
NO_PY_SPY = {"py-spy": "/no/such/py-spy"}
PROGRAMS = {
    "polls_for_file": (),
    "prints_slowly": (),
    "saves": (),
    "sleeps": ("60",),
    "spins": (),
    "starts_children": (),
    "stuck_locks": (),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Headway]:
    """Run programs side by side to their timeout, and return how each got on."""
    folder: Path = tmp_path_factory.mktemp("headway")
    started = {
        name: begin(folder / name, name, *arguments, timeout=TIMEOUT, sample=True, collectors=NO_PY_SPY)
        for name, arguments in PROGRAMS.items()
    }
    endings = {name: supervised.wait() for name, supervised in started.items()}
    assert {ending.stopped_by for ending in endings.values()} == {"timeout"}, endings
    return {name: headway_of(ending) for name, ending in endings.items()}


@SEEN
@needs_proc
@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("prints_slowly", {headway.OUTPUT}),
        ("saves", {headway.DISK, headway.STREAMS}),
        ("spins", {headway.CORE}),
        ("starts_children", {headway.PROCESSES}),
    ],
)
def test_what_gets_on_is_seen_to(seen: dict[str, Headway], name: str, means: set[str]) -> None:
    """A program that computes, writes, prints or starts others gets on, however little of a core it uses."""
    assert seen[name].makes_headway
    assert means & set(seen[name].late)
    assert seen[name].wakes_in is None


@SEEN
@needs_proc
@pytest.mark.parametrize("name", ["polls_for_file", "stuck_locks"])
def test_what_only_waits_does_not_get_on(seen: dict[str, Headway], name: str) -> None:
    """A deadlock, and a loop that polls for what never comes, do nothing up to the end."""
    assert not seen[name].makes_headway
    assert (seen[name].late, seen[name].wakes_in) == ((), None)


@SEEN
@needs_proc
def test_a_sleeper_tells_when_it_wakes(seen: dict[str, Headway]) -> None:
    """A main thread in a single long sleep does nothing, and the kernel knows until when."""
    assert not seen["sleeps"].makes_headway
    wakes_in = seen["sleeps"].wakes_in
    assert wakes_in is not None
    assert 0 < wakes_in < 60


@needs_proc
def test_a_longer_look_ends_with_a_long_pause(tmp_path: Path) -> None:
    """What does nothing for as long as it may is stopped, as the timeout would; a sleeper only after it woke."""
    limits: dict[str, Any] = {"timeout": PATIENCE, "idle_limit": 2.0, "sample": True, "collectors": NO_PY_SPY}
    woken = begin(tmp_path / "woken", "sleeps_then_waits", "3", **limits)
    idle = begin(tmp_path / "idle", "polls_for_file", **limits)
    asleep = begin(tmp_path / "asleep", "sleeps", "5", **limits)
    ending = idle.wait()
    assert (ending.stopped_by, ending.seconds < PATIENCE) == ("timeout", True)
    assert not headway_of(ending).makes_headway
    assert (asleep.wait().stopped_by, asleep.wait().exit_code) == ("exit", 0)
    ending = woken.wait()
    assert (ending.stopped_by, 4 < ending.seconds < PATIENCE) == ("timeout", True)
    assert headway_of(ending).wakes_in is None


@contextlib.contextmanager
def sending(amount: int) -> Iterator[str]:
    """Serve connections that each get so many bytes ten times a second, and yield the port."""
    over = threading.Event()
    connections: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connections.append(server.accept()[0])
                threading.Thread(target=send, args=(connections[-1],)).start()

    def send(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.1):
                connection.sendall(bytes(amount))

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepts = threading.Thread(target=serve)
        accepts.start()
        try:
            yield str(server.getsockname()[1])
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            accepts.join()
            for connection in connections:
                connection.close()


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ending]:
    """Run programs with a TCP connection side by side to their timeout."""
    folder: Path = tmp_path_factory.mktemp("connected")
    with sending(25_000) as port, sending(0) as silent:
        programs = {
            "blocking": ("downloads", port, "0"),
            "with a timeout": ("downloads", port, "60"),
            "silent": ("downloads", silent, "0"),
            "unread": ("ignores_download", port),
            "asks for little": ("polls_over_tcp",),
        }
        started = {
            case: begin(folder / case, *words, timeout=TIMEOUT, sample=True, collectors=NO_PY_SPY)
            for case, words in programs.items()
        }
        return {case: supervised.wait() for case, supervised in started.items()}


@CONNECTED
@needs_proc
@pytest.mark.parametrize("case", ["blocking", "with a timeout"])
def test_who_receives_slowly_gets_on(connected: dict[str, Ending], case: str) -> None:
    """A download at 250 kB a second is slow, not a hang, with and without a timeout on its socket."""
    assert headway.STREAMS in headway_of(connected[case]).late
    assert timeout_outcome(connected[case], PLAIN_LOOK)[0] is Outcome.SLOW


@CONNECTED
@needs_proc
@pytest.mark.parametrize("case", ["silent", "unread", "asks for little"])
def test_an_open_connection_is_no_headway(connected: dict[str, Ending], case: str) -> None:
    """A silent connection, data that nobody takes, and small questions to a store leave a hang a hang."""
    assert not headway_of(connected[case]).makes_headway
    assert timeout_outcome(connected[case], PLAIN_LOOK)[0] is Outcome.HANG


def paused(timeout: float, *work: float) -> Headway:
    """Return how a tree got on that worked in the spells of a second that end at these times, and in no other."""
    pauses = Pauses(0.0, timeout)
    for end in range(1, round(timeout) + 1):
        pauses.end_spell(float(end), {headway.CORE} if end in work else ())
    return Headway.model_validate(pauses.evidence(timeout))


def test_a_short_pause_at_the_end_leaves_it_open() -> None:
    """Two seconds of silence are none, and neither is a fifth of a long attempt."""
    assert paused(10, *range(9)).makes_headway
    assert paused(60, *range(50)).makes_headway
    assert not paused(60, *range(45)).makes_headway


def test_a_pause_like_those_before_leaves_it_open() -> None:
    """Who came back from a pause of six seconds may come back from one of eight, but not from one of ten."""
    assert paused(30, 1, 2, 9, *range(10, 23)).makes_headway
    assert not paused(30, 1, 2, 9, *range(10, 21)).makes_headway


def test_only_the_end_of_an_attempt_shows_how_it_gets_on_late() -> None:
    """What was done long before the end is told in seconds, but is not late."""
    assert (paused(60, 1, 2, 3).late, paused(60, 1, 2, 3).seconds) == ((), {headway.CORE: 3})
    assert paused(60, 58).late == (headway.CORE,)


@pytest.mark.parametrize(
    ("used", "queued", "is_busy"),
    [
        (0.2, 0.0, True),
        (0.06, 0.9, True),  # works, on two cores that more than 30 share
        (0.05, 0.2, True),  # waits for a compiler, which waits for the disk
        (0.002, 0.9, False),  # polls, on the same
        (0.004, 0.0, False),
        (0.013, 0.11, False),  # polls 90 times a second beside 20 others
        (0.017, 0.17, False),
    ],
)
def test_the_queue_counts_for_who_works_only(used: float, queued: float, is_busy: bool) -> None:
    """Queueing for a core is work where there is work; who polls queues at each of its turns, and is idle."""
    totals = object.__new__(Totals)
    totals.counted, totals.used, totals.queued = 0.0, used, queued
    assert is_work([totals], 1.0) is is_busy


@needs_proc
def test_who_gets_no_core_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that had no core since the last look wants one all the time, though the kernel has counted nothing yet."""
    since = Totals.since
    monkeypatch.setattr(Totals, "since", lambda totals, _: since(totals, totals))
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop, contextlib.ExitStack() as held:
        held.callback(loop.kill)
        clock = TreeClock(0.0, TIMEOUT)
        member = kernel.process(loop.pid)
        assert member is not None
        assert until(lambda: (found := kernel.process(loop.pid)) and found.state == "R")
        for second in range(round(TIMEOUT) + 1):
            clock.look(second, [member], 0)
        assert not clock.is_hung(TIMEOUT, [member])


@needs_proc
@pytest.mark.parametrize(("then", "is_hung"), [(0.1, True), (None, False)])
def test_who_wakes_between_two_looks(monkeypatch: pytest.MonkeyPatch, then: float | None, is_hung: bool) -> None:
    """Who sleeps again, as a poll does, has done nothing from the first look on; another one, since it woke."""
    clock, member = TreeClock(0.0, TIMEOUT), kernel.process(os.getpid())
    assert member is not None
    monkeypatch.setattr(Totals, "since", lambda totals, _, since=Totals.since: since(totals, totals))
    for second in range(1, 4):
        monkeypatch.setattr(headway, "switches", lambda *_, second=second: second)
        monkeypatch.setattr(headway, "sleeps_for", lambda _, second=second: 0.1 if second < 3 else then)
        clock.look(second, [member], 0)
    assert clock.is_hung(4.0, [member]) is is_hung
