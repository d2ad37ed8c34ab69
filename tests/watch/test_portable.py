"""A picture that is read on another machine tells the same as at home."""

from pathlib import Path

from tests.hangs import recorded
from whichtorch.hangs.hang_diagnosis import diagnose
from whichtorch.hangs.stacks import HOST_STEP, Descriptor, Process, Thread, Value, python
from whichtorch.watch.process_report import portable, together

PROGRAM = "import threading\n\ndef take(guard):\n    with guard:\n        pass\n"


def waiting(source: Path) -> Process:
    """Return a process whose main thread waits for a lock at a line of a file."""
    frame = python("take", str(source), 4).model_copy(
        update={"values": (Value(name="guard", text="<lock object>", address=7), Value(name="name", text="'secret'"))}
    )
    main = Thread(tid=5, frames=(python("acquire", "threading.py", 3), frame), state="S")
    return Process(pid=5, environ={"RANK": "3", "MASTER_ADDR": "db7.example.com"}, threads=(main,))


def test_what_the_source_says_travels(tmp_path: Path) -> None:
    """Where the script is not, the lock is called as the script calls it."""
    source = tmp_path / "take.py"
    source.write_text(PROGRAM)
    packed = portable(waiting(source))
    source.unlink()
    sites = [frame.site for frame in packed.threads[0].frames]
    assert sites[1] is not None
    assert sites[1].wanted == "guard"
    assert Process.model_validate(packed.model_dump(mode="json", exclude_defaults=True)) == packed


def test_a_recording_tells_the_same_elsewhere() -> None:
    """The sentence of a real hang does not depend on the files of the machine that tells it."""
    name = "queue_without_producer"
    processes, stderr = recorded.picture(name)
    packed = [portable(process).model_dump_json(exclude_defaults=True) for process in processes]
    moved = [text.replace(str(recorded.PROGRAMS), "/nowhere") for text in packed]
    told = diagnose([Process.model_validate_json(text) for text in moved], stderr=stderr)
    assert told.summary == recorded.diagnosed(name).summary


def test_private_values_stay(tmp_path: Path) -> None:
    """Texts of variables and addresses of machines are left out; which object a variable is, and ranks, are kept."""
    packed = portable(waiting(tmp_path / "take.py"))
    assert packed.environ == {"RANK": "3"}
    values = packed.threads[0].frames[1].values
    assert [(value.name, value.address) for value in values] == [("guard", 7), ("name", 0)]
    assert "secret" not in packed.model_dump_json()


def test_numbers_of_machines_do_not_collide() -> None:
    """All that names a process or thread of a machine goes with it."""
    thread = Thread(tid=6, joins=7, owner=8)
    process = Process(pid=5, parent=4, threads=(thread,), descriptors=(Descriptor(number=3, link="p", holders=(9,)),))
    first, second = together([("a", [process]), ("b", [process])])
    assert first == process.model_copy(update={"host": "a"})
    assert (second.pid, second.parent, second.descriptors[0].holders) == (
        HOST_STEP + 5,
        HOST_STEP + 4,
        (HOST_STEP + 9,),
    )
    moved = second.threads[0]
    assert (moved.tid, moved.joins, moved.owner) == (HOST_STEP + 6, HOST_STEP + 7, HOST_STEP + 8)
