"""Why nobody ends a wait: who has gone, who is outside of what is seen, and no word of it where the program gets on."""

import pytest

from tests.hangs.recorded import diagnosed, picture
from whichtorch.hangs.hang_diagnosis import agreeing, diagnose
from whichtorch.hangs.narration import ended_children
from whichtorch.hangs.stacks import Frame, Process, Thread, Value, python
from whichtorch.hangs.thread_state import ThreadState
from whichtorch.hangs.wait_graph import lock_identity
from whichtorch.model import Outcome


def test_children_that_ended_alike_are_counted() -> None:
    """One is named by its number; those that ended well are no reason."""
    processes = [Process(pid=number, ended="exit code 1") for number in (1, 2, 3)]
    processes += [Process(pid=4, ended="SIGKILL"), Process(pid=5, ended="exit code 0"), Process(pid=6)]
    assert ended_children(processes) == ["3 children have ended (exit code 1)", "child 4 was killed by SIGKILL"]


@pytest.mark.parametrize(
    ("holders", "words"),
    [
        ((99,), "process 99 has the other end, and is not one of the processes seen here"),
        ((), "the other end is not in any process seen here: whether it still sends or reads is not known"),
    ],
)
def test_a_peer_outside_of_the_tree_may_still_send(holders: tuple[int, ...], words: str) -> None:
    """Of a socket whose other end no process of the tree has, it is not said that nobody is left."""
    (process,), stderr = picture("client_of_silent_listener")
    rows = tuple(row.model_copy(update={"holders": holders}) for row in process.descriptors)
    summary = diagnose([process.model_copy(update={"descriptors": rows})], stderr=stderr).summary
    assert summary.endswith(f"; {words}")


def test_what_gets_on_is_not_without_anybody_to_end_its_wait() -> None:
    """Of what is slow, all else is told but that nobody could end its wait."""
    told = agreeing(diagnosed("queue_without_producer"), Outcome.SLOW, None).summary
    assert told.endswith("which is empty; no other thread or process runs any of your code")


def frame(**addresses: int) -> Frame:
    """Return a frame of a method in which some local variables are known."""
    values = tuple(Value(name=name, address=address) for name, address in addresses.items())
    return python("take", "/home/user/pool.py", 7).model_copy(update={"values": values})


def test_a_lock_is_known_by_the_object_it_belongs_to() -> None:
    """Two names of one object mean one lock; one name of two objects means two."""
    assert lock_identity("source.guard", frame(source=1)) == lock_identity("target.guard", frame(target=1))
    assert lock_identity("self.guard", frame(self=1)) != lock_identity("self.guard", frame(self=2))


def test_a_lock_of_a_module_is_known_by_its_name() -> None:
    """A name that is no local variable is the module's: the same text in the same file is the same lock."""
    assert lock_identity("guard", frame()) == lock_identity("guard", frame())


def test_methods_whose_objects_are_not_known_share_no_lock() -> None:
    """Where no collector could read values, `self.guard` of two methods may be of two objects."""
    assert lock_identity("self.guard", frame()) != lock_identity("self.guard", frame())


def test_a_hint_holds_for_all_that_its_kind_tells() -> None:
    """Ranks that wait for messages make the same calls already; who waits for a key may have come long ago."""
    assert "`recv`" in diagnosed("pipeline_stages").kind.remedy
    assert "for a key" in diagnosed("weights_of_trainer").kind.remedy


def test_who_waits_otherwise_is_not_in_the_usual_wait_of_a_call() -> None:
    """An import that reads a slow disk wants no lock, and who enters a queue waits for no room in it."""
    of_imports = "<frozen importlib._bootstrap>"
    for file, function, state in ((of_imports, "_find_and_load", "D"), ("/lib/queue.py", "put", "S")):
        calls = (("__enter__", "/lib/threading.py"), (function, file), ("load", "/home/user/a.py"))
        thread = Thread(tid=1, state=state, frames=tuple(python(*call, 1) for call in calls))
        assert ThreadState(Process(pid=1), thread).user.call is None
