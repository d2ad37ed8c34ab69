"""Whose code a frame is, what a signature calls it, and what of a text holds from run to run."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from whichtorch.source.code_owner import frame_name, generator_of, is_users, normalized

HASH = "cq7b4drx2mzk3lwaj5ftyhv6ogniuespqb2c7d4e5f3g6h2jklmn"  # in base 32, as Inductor writes a SHA-256
UUID = "0a1b2c3d-1234-5678-9abc-def012345678"
LIBRARY = "/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("file", "function", "generator"),
    [
        (f"/tmp/torchinductor_me/q7/{HASH}.py", "call", "Inductor"),
        (f"/tmp/torchinductor_me/q7/{HASH}.py", "<module>", "Inductor"),
        (f"/work/.whichtorch/runs/1/attempts/7/tmp/inductor/q7/{HASH}.py", "call", "Inductor"),
        (f"/tmp/torchinductor_me/q7/{HASH}.so", "kernel", "Inductor"),
        (f"/elsewhere/q7/{HASH}.main.so", "kernel", "Inductor"),
        (f"{HASH}.so", "kernel", "Inductor"),
        ("", "cpp_fused__softmax_add_0", "Inductor"),
        ("main.so", "cpp_fused_add_12", "Inductor"),
        (f"/home/me/.triton/cache/{'AB3-_' * 9}/kernel.py", "launch", ""),
        (f"/home/me/.cache/triton/{'ab3-_' * 9}/kernel.so", "launch", "Triton"),
        ("kernel.py", "triton_poi_fused_add_0", "Triton"),
        ("kernel.py", "triton_red_fused_sum_3", "Triton"),
        ("/work/repro.py", "__compiled_fn_7", "Dynamo"),
        ("/work/repro.py", f"__compiled_fn_7_{UUID}", "Dynamo"),
        ("/work/repro.py", f"__compiled_fn_7_{UUID.replace('-', '_')}", "Dynamo"),
        ("<string>", "___make_guard_fn", "Dynamo"),
        ("<eval_with_key>.42", "forward", "fx"),
        ("<eval_with_key>.7 from /work/repro.py:3 in wrapped", "forward", "fx"),
        ("code/__torch__/repro.py", "forward", "TorchScript"),
        ("<string>", "__init__", "exec"),
        ("<attrs generated init repro.Config>", "__init__", "exec"),
    ],
)
def test_generated_code_is_called_by_what_generated_it(file: str, function: str, generator: str) -> None:
    """Hashes, counters and uuids name nothing, so a frame of generated code stands for its generator."""
    assert generator_of(file, function) == generator
    if generator:
        assert frame_name(file, function) == f"code that {generator} generated"


@pytest.mark.parametrize(
    ("file", "function", "name"),
    [
        ("/work/repro.py", "torch_dynamo_resume_in_f_at_12", "f (repro.py)"),
        ("/work/repro.py", "torch_dynamo_resume_in_add_mm_at_120", "add_mm (repro.py)"),
        ("/work/repro.py", "torch_dynamo_resume_in__inner_at_3", "_inner (repro.py)"),
        ("<ipython-input-3-ab12cd34ef56>", "<module>", "<module> (notebook cell)"),
        ("<ipython-input-14-0123456789ab>", "train", "train (notebook cell)"),
        ("/tmp/ipykernel_4242/1234567890.py", "<module>", "<module> (notebook cell)"),
        ("/tmp/ipykernel_17/99.py", "<module>", "<module> (notebook cell)"),
        ("/tmp/tmpab12cd34/model.py", "f", "f (model.py)"),
        ("/tmp/tmpab12cd34.py", "f", "f (*.py)"),
        ("/work/.whichtorch/runs/1/attempts/7/tmp/module_4242.py", "f", "f (temporary file)"),
        ("/work/repro.py", f"step_{UUID}", "step_* (repro.py)"),
        ("/work/model_v2.py", "conv2d", "conv2d (model_v2.py)"),
    ],
)
def test_the_users_code_keeps_its_name_without_what_varies(file: str, function: str, name: str) -> None:
    """What Dynamo renames has the user's name, a cell of a notebook and a temporary module none of their own."""
    assert is_users(file)
    assert not generator_of(file, function)
    assert frame_name(file, function) == name
    assert frame_name(file, function, 12) == f"{name[:-1]}:12)"


@pytest.mark.parametrize(("file", "name"), [("<made-140263910632336>", "<made-*>"), ("<frozen zipimport>",) * 2])
def test_the_number_of_code_without_a_file_is_left_out(file: str, name: str) -> None:
    """A program that compiles a text calls it by a counter or an address."""
    assert frame_name(file, "run") == f"run ({name})"


@pytest.mark.parametrize(
    "file",
    [
        f"{LIBRARY}/torch/_ops.py",
        f"{LIBRARY}/numpy/__init__.py",
        "/usr/lib/python3/dist-packages/yaml/__init__.py",
        "/usr/lib/python3.11/asyncio/base_events.py",
        "/opt/lib/python3.13t/threading.py",
        "/home/me/.venv/bin/pytest",
        "/home/me/pytorch/torch/_dynamo/eval_frame.py",
        "/home/me/pytorch/torch/nn/modules/linear.py",
        "torch/csrc.py/torch/autograd/function.py",
        "<frozen importlib._bootstrap>",
        "<frozen runpy>",
        "<__array_function__ internals>",
        "/work/matrix/environments/inside/startup/sitecustomize.py",
        "/work/matrix/environments/inside/fork_server.py",
        "/work/whichtorch/inside/startup/sitecustomize.py",
        "/work/whichtorch/inside/fork_server.py",
        f"/tmp/torchinductor_me/q7/{HASH}.py",
        "<eval_with_key>.42",
        "code/__torch__/repro.py",
        "",
    ],
)
def test_what_is_not_the_users(file: str) -> None:
    """Installed packages, Python itself, a torch built in place, this tool and generated files are not the user's."""
    assert not is_users(file)


@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("/work/repro.py", "call_0"),
        ("/work/repro.py", "<module>"),
        ("/home/me/torch/train.py", "main"),
        ("/home/me/mytorch/nn/model.py", "forward"),
        ("/home/me/library/python/repro.py", "main"),
        ("<stdin>", "<module>"),
        ("<string>", "<module>"),
        ("<doctest repro[0]>", "<module>"),
        ("repro.py", "check"),
    ],
)
def test_what_is_the_users(file: str, function: str) -> None:
    """A script, what is typed in or given with -c, and folders that only look like a library's are the user's."""
    assert is_users(file)
    assert generator_of(file, function) in {"", "exec"}


def test_the_line_of_a_command_is_kept() -> None:
    """`python -c` is the user's own text, whose lines tell places apart."""
    assert frame_name("<string>", "<module>", 3) == "<module> (<string>:3)"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("<f at 0x7f1d6be29740>", "<f at 0x55aa>"),
        (f"no kernel {HASH}.py", f"no kernel {HASH[::-1].replace('n', 'c', 1)}.py"),
        (f"lost worker {UUID}", "lost worker ffffffff-0000-4000-8000-0123456789ab"),
        ("DataLoader worker (pid 4242) is killed", "DataLoader worker (pid 17) is killed"),
        ("127.0.0.1:29500 refused", "127.0.0.1:41873 refused"),
        ("timed out after 3.25 s at 12:01:33", "timed out after 30 s at 9:59:01"),
        ("2026-01-02 10:11:12 late", "2025-11-23 09:47:01 late"),
        ("no /tmp/tmpab12cd34/x.py", "no /var/folders/1z/tmpzz99_x1y/x.py"),
        ("at /home/<user>/a/cpp_prefix.h:848", "at /srv/b/c/cpp_prefix.h:12"),
        ("no /work/attempts/7/tmp/inductor/x.so", "no /work/attempts/12/tmp/inductor/x.so"),
        ("seed 1234567890", "seed 7"),
        ("{'b', 'a', 'c'}", "{'c', 'b', 'a'}"),
        ("{a 9, b 8}", "{b 80, a 90}"),
        ("mat1 (3x4), mat2 (5x6)", "mat1 (30x4), mat2 (51x6)"),
        ("1,024 of 1e-05", "12 of 2.5e+3"),
        ("loss is -1.5", "loss is 12"),
        ("two\n  lines", "two lines"),
    ],
)
def test_what_varies_from_run_to_run_is_taken_out(first: str, second: str) -> None:
    """Addresses, hashes, processes, ports, times, temporary folders, seeds, the order of sets and numbers."""
    assert normalized(first) == normalized(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("expected float32", "expected float64"),
        ("expected int8", "expected int64"),
        ("expected uint8", "expected uint16"),
        ("expected complex64", "expected complex128"),
        ("expected bfloat16", "expected float16"),
        ("expected float8_e4m3fnuz", "expected float8_e5m2fnuz"),
        ("no /tmp/tmpab12cd34/x.py", "no /tmp/tmpab12cd34/y.py"),
        ("{'a': 'b', 'c': 'd'}", "{'c': 'd', 'a': 'b'}"),  # a dict has an order
        ("cpu, meta", "meta, cpu"),
        ("aten::add.Tensor", "aten::add.Scalar"),
        ("defaced", "effaced"),  # words that are written in hexadecimal digits
    ],
)
def test_what_tells_failures_apart_is_kept(first: str, second: str) -> None:
    """The names of dtypes, operators and files stay, numbers in them included."""
    assert normalized(first) != normalized(second)


WORDS = st.sampled_from(
    [
        "0x7f1d6be29740", HASH, UUID, "4242", "3.25", "-1e-05", "1,024", "float32", "float8_e4m3fn",
        "/tmp/tmpab12cd34/x.py", "~/a/b/c.py", "{'b', 'a'}", "{9, A, 8b}", "{1, 2}", "tensor", "a1b2c3d4", "(3x4)",
        "12:01:33", "cuda:0", "\n", "v1.2.3",
    ]
)  # fmt: skip


@given(st.lists(WORDS).map(" ".join))
@example("{9b, 8a}")
def test_a_normalized_text_is_normalized(text: str) -> None:
    """What nothing varies in is left as it is, so that a stored text compares with a new one."""
    assert normalized(normalized(text)) == normalized(text)


@given(st.lists(WORDS).map(" ".join), st.integers(0, 2**64), st.integers(0, 2**64))
def test_numbers_do_not_tell_texts_apart(text: str, number: int, other: int) -> None:
    """Wherever a number stands, another one would give the same text."""
    assert normalized(f"{text} at {number} of {hex(other)}") == normalized(f"{text} at {other} of {hex(number)}")
