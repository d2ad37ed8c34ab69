"""What a running thread does: Python code, native code, a compilation."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from matrix.diagnosis.stacks import Frame  # noqa: TC001 - pydantic resolves it
from matrix.model import Model

if TYPE_CHECKING:
    from matrix.diagnosis.stacks import Process, Thread

# Names of the interpreter that Python code runs by. What it calls (builtin_any, long_pow) is native code of its own.
_INTERPRETER = re.compile(
    r"^(?:_?Py[A-Z_]\w*|_Py\w*|(?:long|float|unicode|bool|list|dict|tuple|set|object|type|func|method|slot|subtype"
    r"|gc|binary|range\w*|code|frame|gen|cell)_(?:dealloc|alloc|new|richcompare|hash|add|sub\w*|mul\w*|dict_\w+|call"
    r"|vectorcall\w*|getattro?|iter\w*|next\w*|traverse|collect\w*|op\d?|subscript|length|item)|take_gil|drop_gil"
    r"|eval_frame\w*|visit_\w+|subtract_refs|update_refs|deduce_unreachable|x_add|x_sub"
    # Small helpers, which a Python with debug information names although they are inlined.
    r"|get_small_int|maybe_small_long|is_medium_int|medium_\w+|long_normalize|fast_mod|fast_floor_div|l_mod|l_divmod"
    r"|pymalloc_\w+|address_in_range|arena_map_\w+|maybe_freelist_\w+|\w+_freelist\w*|tuplerichcompare|do_richcompare"
    r"|binary_op1?|ternary_op|lookdict\w*|\w*keys_lookup\w*|dictkeys_\w+|insertdict|insertion_resize|find_empty_slot"
    r"|new_keys_object|free_keys_object|list_resize|app1|(?:list|tuple|range|dict|set)iter_\w+|gen_\w+|vectorcall_\w+"
    r"|initialize_locals|clear_thread_frame|frame_\w+|specialize_\w+|unpack_iterable|do_call_core|slot_tp_\w+)$"
)
_GLUE = re.compile(r"^(?:cfunction_\w+|builtin_exec\w*|_call_function_pointer|_?ctypes_callproc|ffi_call|closure_fcn)$")
_INTERPRETER_LIBRARY = re.compile(r"^(?:libpython|python)[\d.]")

# Where torch compiles. Running what was compiled goes through some of the same files, by the functions left out.
_COMPILES = re.compile(
    r"(?:^|/)(?:torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph|bytecode_\w+|guards|variables/\w+)"
    r"|torch/_inductor/(?:graph|scheduler|lowering|ir|sizevars|pattern_matcher|select_algorithm|cpp_builder|cpu_vec_isa"
    r"|async_compile|autotune_process|loop_body|dependencies|virtualized|compile_fx|codecache|codegen/[\w/]+|fx_passes/[\w/]+)"
    r"|torch/fx/experimental/symbolic_shapes|torch/_functorch/_aot_autograd/(?:graph_capture|dispatch_and_compile_graph)"
    r"|triton/compiler/\w+|triton/backends/\w+/compiler)\.py$"
)
_RUNS_COMPILED = {"__call__", "run", "_run_from_cache", "wrapper", "inner", "_fn", "call", "current_callable"}
_RUNNERS = {"compile_fx.py", "codecache.py", "graph.py", "async_compile.py"}
_COMPILERS = re.compile(
    r"^(?:cc1plus|cc1|g\+\+|gcc|c\+\+|clang|clang\+\+|nvcc|cicc|ptxas|ninja|lld?|collect2|as)(?:-[\d.]+)?$"
)


class Activity(Model):
    """Where a running thread is."""

    is_python: bool | None  # None: the frames at hand are of Python only, and it may be in native code beyond them
    frame: Frame


def activity(thread: Thread) -> Activity | None:
    """Return what a thread does that is known to use a core, None for any other."""
    if not thread.is_running or not thread.frames:
        return None
    whole = any(not frame.is_python for frame in thread.frames)
    for frame in thread.frames:
        if frame.is_python:
            return Activity(is_python=True if whole else None, frame=frame)
        if frame.is_named and not _is_interpreter(frame):
            return Activity(is_python=False, frame=frame)
        if not frame.is_named and not _of_interpreter(frame):
            return Activity(is_python=False, frame=frame)
    return Activity(is_python=False, frame=thread.frames[0])


def _is_interpreter(frame: Frame) -> bool:
    return bool(_INTERPRETER.match(frame.function)) and (frame.library is None or _of_interpreter(frame))


def _of_interpreter(frame: Frame) -> bool:
    return bool(_INTERPRETER_LIBRARY.match(PurePath(frame.library or "").name))


def is_compiling(thread: Thread) -> Frame | None:
    """Return the innermost frame of a compiler of torch's in which a thread is."""
    for frame in thread.frames:
        file = (frame.file or "").replace("\\", "/")
        if not frame.is_python or not _COMPILES.search(file):
            continue
        name = frame.function.rpartition(".")[2]
        if not (PurePath(file).name in _RUNNERS and name in _RUNS_COMPILED):
            return frame
    return None


def awaits_compiler(thread: Thread) -> bool:
    """Return whether a compiler of torch's has started a program and waits for it."""
    compiling = is_compiling(thread)
    inner = thread.frames[: thread.frames.index(compiling)] if compiling else ()
    started = any(PurePath(frame.file or "").name == "subprocess.py" for frame in inner)
    return started or (compiling is not None and "run_compile_cmd" in compiling.function)


def is_interpreter(frame: Frame) -> bool:
    """Return whether a frame is the interpreter's own work: how Python code runs, not what it calls."""
    return not frame.is_python and (_is_interpreter(frame) or bool(_GLUE.match(frame.function)))


def is_compiler(process: Process) -> bool:
    """Return whether a process is a compiler or part of one, and has not been stopped."""
    words = process.command.split()
    stopped = any(thread.state in {"T", "Z"} for thread in process.threads)
    return bool(words) and bool(_COMPILERS.match(PurePath(words[0]).name)) and not stopped
