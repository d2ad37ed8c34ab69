"""The prints of a PyTorch patched to trace at::mm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hangs.pictures import table
from whichtorch.hangs.dispatch.call_path import KernelKind, Place, Stage, Status
from whichtorch.hangs.dispatch.written_calls import prints_place

META = "DispatchKeySet(Meta, ADInplaceOrView, AutogradMeta)"
# A call that ends well, and where it is when the line is the last one.
TRANSCRIPT: list[tuple[str, Stage]] = [
    ("[DEBUG _matmul_impl] About to call at::mm WITHOUT NoGradGuard...", Stage.CALL),
    (f"[DEBUG _matmul_impl] t1_folded.key_set() = {META}", Stage.CALL),
    ("[DEBUG _matmul_impl] Now calling at::mm...", Stage.CALL),
    ("[DEBUG Dispatcher::call] op=aten::mm", Stage.CALL),
    ("[DEBUG Dispatcher::call] dispatchKeySet=DispatchKeySet(Meta, AutogradMeta)", Stage.CALL),
    ("[DEBUG Dispatcher::call] About to call lookup()", Stage.LOOKUP),
    ("[DEBUG OperatorEntry::lookup] op=aten::mm, keyset=DispatchKeySet(Meta, AutogradMeta)", Stage.LOOKUP),
    ("[DEBUG OperatorEntry::lookup] highest priority key=AutogradMeta", Stage.LOOKUP),
    ("[DEBUG OperatorEntry::lookup] dispatch table index=112", Stage.LOOKUP),
    ("[DEBUG OperatorEntry::lookup] kernel.isValid=1, isValidUnboxed=1", Stage.FOUND),
    ("[DEBUG OperatorEntry::lookup] Returning kernel, about to call it", Stage.FOUND),
    ("[DEBUG Dispatcher::call] lookup() returned", Stage.FOUND),
    ("[DEBUG Dispatcher::call] About to call kernel.call<>() [fast path]", Stage.AUTOGRAD),
    ("[DEBUG OperatorEntry::lookup] op=aten::mm, keyset=DispatchKeySet(Meta)", Stage.LOOKUP_AGAIN),
    ("[DEBUG OperatorEntry::lookup] highest priority key=Meta", Stage.LOOKUP_AGAIN),
    ("[DEBUG OperatorEntry::lookup] dispatch table index=16", Stage.LOOKUP_AGAIN),
    ("[DEBUG OperatorEntry::lookup] kernel.isValid=1, isValidUnboxed=0", Stage.FOUND_AGAIN),
    ("[DEBUG OperatorEntry::lookup] Returning kernel, about to call it", Stage.FOUND_AGAIN),
    ("[DEBUG Dispatcher::callBoxed] About to call kernel.callBoxed() [fast path]", Stage.BACKEND),
    ("[DEBUG KernelFunction::callBoxed] About to call boxed_kernel_func_.callBoxed()", Stage.BACKEND),
    ("[DEBUG BoxedKernel::callBoxed] About to invoke (*boxed_kernel_func_)(...)", Stage.BACKEND),
    ("[DEBUG TORCH_META_FUNC(mm)] ========== ENTERED MM META FUNCTION ==========", Stage.INSIDE),
    ("[DEBUG TORCH_META_FUNC(mm)] self shape: [8, 16]", Stage.INSIDE),
    ("[DEBUG TORCH_META_FUNC(mm)] Meta function complete", Stage.INSIDE),
    ("[DEBUG BoxedKernel::callBoxed] (*boxed_kernel_func_)() RETURNED!", Stage.RETURNED),
    ("[DEBUG KernelFunction::callBoxed] boxed_kernel_func_.callBoxed() RETURNED", Stage.RETURNED),
    ("[DEBUG Dispatcher::callBoxed] kernel.callBoxed() RETURNED [fast path]", Stage.RETURNED),
    ("[DEBUG _matmul_impl] at::mm RETURNED!", Stage.RETURNED),
]
LINES = [line for line, _ in TRANSCRIPT]


def cut(lines: int, *, tables: bool = False, before: str = "") -> Place:
    """Return the place of a transcript that ends after so many lines."""
    text = before + "\n".join(LINES[:lines])
    place = prints_place(text, {"aten::mm": table()} if tables else None)
    assert place is not None
    return place


def test_cut_at_every_line() -> None:
    """Wherever the prints end, the last one gives the stage, and all that should have followed are named."""
    for lines, (_, stage, *_) in enumerate(TRANSCRIPT, 1):
        place = cut(lines)
        assert place.stage is stage, lines
        assert len(place.missing) == len(TRANSCRIPT) - lines
        for name, line in zip(place.missing, LINES[lines:], strict=True):
            scope, _, text = name.partition("] ")
            assert line.startswith(scope)
            assert text.strip("….") in line
        assert place.operator == "aten::mm", lines


def test_an_earlier_call_that_returned_changes_nothing() -> None:
    """A call before the one that hangs is over: only the last one counts."""
    before = "\n".join(LINES) + "\n"
    assert [lines for lines in range(1, len(TRANSCRIPT) + 1) if cut(lines, before=before) != cut(lines)] == []


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("About to call at::mm", "entering the dispatcher"),
        ("About to call lookup()", "in the lookup"),
        ("dispatch table index=16", "in the kernel validity check"),
        ("About to call kernel.callBoxed()", "in the invocation of the kernel"),
        ("About to invoke", "its meta function never entered"),
        ("ENTERED MM META", "inside the meta kernel"),
    ],
)
def test_what_the_last_print_means(line: str, meaning: str) -> None:
    """The table's own lines mean what its authors say they mean."""
    at = next(number for number, text in enumerate(LINES) if line in text)
    assert cut(at + 1).note.endswith(meaning)


def test_after_the_call_of_the_functor() -> None:
    """After the boxed functor's call the environment's table says why no meta print came: the kernel is Python's."""
    place = prints_place("\n".join(LINES[:21]) + "\nCalling functor operator()", {"aten::mm": table()})
    assert place is not None
    assert place.words == "boxed kernel, Python-registered Meta kernel of aten::mm"
    assert (place.boxed, place.kernel, place.key) == (True, KernelKind.PYTHON, "Meta")
    assert "take the GIL" in place.note
    assert not any("TORCH_META_FUNC" in name for name in place.missing)
    assert place.missing[0].startswith("[DEBUG BoxedKernel::callBoxed]")
    found = {step.stage: step.status for step in place.steps}
    assert found[Stage.BACKEND] is Status.STUCK
    assert found[Stage.INSIDE] is Status.NEVER


def test_a_missing_print_in_the_middle_is_named() -> None:
    """A print that was skipped, though later ones came, is among the missing."""
    place = prints_place("\n".join(LINES[:8] + LINES[9:13]))
    assert place is not None
    assert place.stage is Stage.AUTOGRAD
    assert place.missing[-1] == "[DEBUG OperatorEntry::lookup] dispatch table index="


def test_without_autograd_its_prints_are_not_missed() -> None:
    """A key set without an autograd key leads to one lookup only."""
    keys = "DispatchKeySet(Meta)"
    lines = [LINES[3], f"[DEBUG Dispatcher::call] dispatchKeySet={keys}", LINES[5], *LINES[13:18]]
    place = prints_place("\n".join(lines))
    assert place is not None
    assert place.keys == ("Meta",)
    assert not any("Autograd" in name for name in place.missing)


@given(st.lists(st.sampled_from([*LINES, "something else", "[DEBUG", "[DEBUG x] op="]), max_size=40))
def test_any_order_gives_some_place(lines: list[str]) -> None:
    """Prints of several threads may come in any order: some place is found where any print is, and nothing raises."""
    place = prints_place("\n".join(lines))
    assert (place is None) <= (not any(line in LINES for line in lines))
