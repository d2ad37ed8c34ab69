"""Who could end a wait, and which expressions mean the same lock."""

from __future__ import annotations

from whichtorch.matrix.diagnosis.hang.partners import lock_identity
from whichtorch.matrix.diagnosis.stacks import Frame, Value, python


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
