"""Which loops around a wait with a timeout go on for ever, by their source alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from whichtorch.process.evidence.polls import loops_for_ever, only_sleeps

STANDARD = {
    "event.wait": ("/lib/threading.py", "wait"),
    "get": ("/lib/queue.py", "get"),
    "join": ("/lib/threading.py", "join"),
    "wait_for": ("/lib/threading.py", "wait_for"),
}
ENDLESS = {
    "in the condition": "while not event.wait(1):  #\n    pass",
    "with a flag": "while not event.is_set():\n    event.wait(1)  #",
    "a queue whose items are not there": """
        while True:
            try:
                item = items.get(timeout=1)  #
            except Empty:
                continue
            handle(item)
    """,
    "until a thread ends": "while thread.is_alive():\n    thread.join(1)  #",
    "beside classes that it does not ask": """
        class Order(Sampler):
            def __iter__(self):
                return iter(range(8))
            def __len__(self):
                return 8
            def __eq__(self, other):
                return now() > 3
        while not event.is_set():
            event.wait(1)  #
    """,
    "an attribute that nothing computes": """
        class Server:
            def __init__(self):
                self.runs = True
            def work(self):
                while self.runs:
                    self.event.wait(1)  # work
    """,
}
OPEN = {
    "a clock": "while time.time() < end:\n    event.wait(1)  #",
    "a clock in the argument": "while True:\n    event.wait(pause())  #",
    "a count": "while count:\n    event.wait(1)  #\n    count -= 1",
    "a name that it sets in steps": """
        warned = insisted = False
        while not event.wait(1):  #
            if insisted:
                break
            if warned:
                insisted = True
            warned = True
    """,
    "what is no flag": "stop = numpy.asarray(shared)\nwhile not stop:\n    event.wait(1)  #",
    "another count": "while count:\n    event.wait(1)  #\n    count = count - 1",
    "a number of times": "for _ in range(60):\n    event.wait(1)  #",
    "a number of times in a comprehension": "any(event.wait(1) for _ in range(60))  #",
    "an attribute that may be computed": "while not limit.expired:\n    event.wait(1)  #",
    "a property": """
        class Limit:
            def __init__(self):
                self.over = False
            @property
            def over(self):
                return now() > 3
            def work(self):
                while not self.over:
                    self.event.wait(1)  # work
    """,
    "a flag of a class of its own": """
        class Deadline:
            def is_set(self):
                return now() > self.end
        while not deadline.is_set():
            event.wait(1)  #
    """,
    "an object that says itself whether it is true": """
        class Deadline:
            def __bool__(self):
                return now() > self.end
        while not deadline:
            event.wait(1)  #
    """,
    "an object that counts something elsewhere": """
        class Spool:
            def __len__(self):
                return len(listdir(self.folder))
        while not spool:
            event.wait(1)  #
    """,
    "a queue that says itself what is in it": """
        class Delayed(Queue):
            def _qsize(self):
                return len(self.queue) if now() > self.due else 0
        while True:
            try:
                item = items.get(timeout=1)  #
            except Empty:
                continue
    """,
    "what a condition waits to be true": "while not condition.wait_for(is_late, timeout=1):  #\n    pass",
    "something else that lives": "while job.is_alive():\n    event.wait(1)  #",
    "what handles a wait in vain": """
        while True:
            try:
                items.get(timeout=1)  #
            except Empty:
                give_up_after_some()
                continue
    """,
    "what follows a wait that raises nothing": """
        while True:
            try:
                event.wait(1)  #
                give_up_after_some()
            except Empty:
                continue
    """,
    "a loop that yields": "while True:\n    event.wait(1)  #\n    yield",
    "no loop": "event.wait(1)  #",
    "a sleep": "while not ready:\n    time.sleep(1)  #",
}


def goes_on(path: Path, source: str, *, is_seen: bool = True) -> bool:
    """Return what is said of a thread that waits at the line which is marked, in the function that the mark names."""
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    lines = path.read_text(encoding="utf-8").splitlines()
    number = next(number for number, line in enumerate(lines, 1) if "#" in line)
    marked = lines[number - 1]
    inner = [{"filename": file, "name": name, "line": 1} for call, (file, name) in STANDARD.items() if call in marked]
    own = {"filename": str(path), "name": marked.partition("#")[2].strip() or "<module>", "line": number}
    return loops_for_ever([*inner, own], is_seen=is_seen)


@pytest.mark.parametrize("name", ENDLESS)
def test_a_loop_that_looks_at_nothing_but_what_it_waits_for_goes_on_for_ever(tmp_path: Path, name: str) -> None:
    """Once it was seen to go round."""
    assert goes_on(tmp_path / f"{name}.py", ENDLESS[name])
    assert not goes_on(tmp_path / f"unseen {name}.py", ENDLESS[name], is_seen=False)


@pytest.mark.parametrize("name", OPEN)
def test_a_loop_that_may_come_to_another_result_does_not(tmp_path: Path, name: str) -> None:
    """Clocks, counts, calls and attributes may let it end."""
    assert not goes_on(tmp_path / f"{name}.py", OPEN[name])


def test_a_loop_that_looks_at_an_object_of_a_module_beside_it_does_not(tmp_path: Path) -> None:
    """Its class may decide by a clock; a module that has no such class decides nothing."""
    source = "from {0} import Deadline\nwhile not stop.is_set():\n    event.wait(1)  #"
    for folder in (tmp_path, tmp_path / "app"):
        folder.mkdir(exist_ok=True)
        (folder / "tools.py").write_text("class Deadline:\n    def is_set(self):\n        return now() > self.end")
    assert not goes_on(tmp_path / "served.py", source.format("tools"))
    assert not goes_on(tmp_path / "app" / "named_from_above.py", source.format("app.tools"))
    assert goes_on(tmp_path / "elsewhere.py", source.format("installed"))


def test_a_loop_whose_source_is_not_known_does_not() -> None:
    """Its file may have gone."""
    assert not loops_for_ever([{"filename": "/none.py", "name": "work", "line": 3}], is_seen=True)


@pytest.mark.parametrize(
    ("source", "is_endless"),
    [
        ("while True:\n    time.sleep(3600)", True),
        ("while running:\n    time.sleep(3600)", False),
        ("while True:\n    time.sleep(3600)\n    work()", False),
        ("while True:\n    with lock: time.sleep(3600); work()", False),
        ("while True:\n    work(time.sleep(3600))", False),
        ("for _ in range(9):\n    time.sleep(3600)", False),
        ("pass\ntime.sleep(3600)", False),
    ],
)
def test_a_loop_with_nothing_but_a_sleep_never_ends(tmp_path: Path, source: str, is_endless: bool) -> None:
    """Anything else in the loop, or in its condition, may end it."""
    path = tmp_path / f"{source.split()[1]} {len(source)}.py"  # sources are cached by their paths
    path.write_text(source)
    frame = {"filename": str(path), "name": "<module>", "line": 2}
    assert only_sleeps(frame) is is_endless
