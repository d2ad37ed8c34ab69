"""What a fork server imports at each level, and whether it may be forked afterwards.

Runs in the environments under test, under any Python that has torch wheels, with the standard library only.
"""
# ruff: noqa: PTH208

from __future__ import annotations

import gc
import importlib
import os
import sys
import time

# What a level imports beside those before it; a release that lacks a module has no need of it.
TORCH = (  # what eager code imports when it compares, fakes or traces
    "sympy",
    "torch.fx.experimental.symbolic_shapes",
    "torch._subclasses.fake_tensor",
    "torch.testing",
    "torch.nested._internal.nested_tensor",  # these three by assert_close
    "torch.distributed.tensor",
    "torch.fx.experimental._constant_symnode",
)
DYNAMO = (
    "networkx",
    "torch._dynamo",
    "torch._dynamo.convert_frame",
    "torch._dynamo.backends.debugging",
    "torch._dynamo.backends.common",
    "torch._functorch.aot_autograd",
    "torch.export",
    "torch.optim",
)
INDUCTOR_PARTS = (
    *("compile_fx", "codecache", "async_compile", "graph", "scheduler"),
    *("codegen.cpp", "codegen.cpp_wrapper_cpu", "codegen.wrapper"),
    *("fx_passes.joint_graph", "fx_passes.post_grad", "fx_passes.fuse_attention", "fx_passes.serialized_patterns"),
)
INDUCTOR = tuple("torch._inductor." + part for part in INDUCTOR_PARTS)
# What is worked out once per process, without an operator: module, function.
DYNAMO_TABLES = (("torch._dynamo", "list_backends"), ("torch._dynamo.trace_rules", "get_torch_obj_rule_map"))
INDUCTOR_TABLES = (
    ("torch._inductor.cpu_vec_isa", "pick_vec_isa"),  # starts compilers
    ("torch._inductor.codecache", "pick_vec_isa"),  # its place before 2.5
    ("torch._inductor.codegen.common", "init_backend_registration"),
)
SPEAKING = ("torch.utils.cpp_extension",)  # prints on import which compiler it found: each script is to print that
LEVELS = {
    "torch": (TORCH, ()),
    "dynamo": (TORCH + DYNAMO, DYNAMO_TABLES),
    "inductor": (TORCH + DYNAMO + INDUCTOR, DYNAMO_TABLES + INDUCTOR_TABLES),
}
BRIEF_EXIT = "WHICHTORCH_BRIEF_EXIT"
COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"
SETTLING = 2.0  # seconds for threads that have been joined to be gone


def import_level(level: str) -> None:
    """Import what a level holds beside torch, which is there."""
    freeze_objects()
    before = os.environ.get(COMPILE_THREADS)
    os.environ[COMPILE_THREADS] = "1"  # else importing inductor starts a pool of processes
    modules, tables = LEVELS[level]
    for module in modules:
        try_import(module)
        freeze_objects()
    for module, function in tables:
        try_import(module, function)
    for module in SPEAKING:
        forgotten = sys.modules.pop(module, None)
        package, _, name = module.rpartition(".")
        if forgotten is not None:
            vars(sys.modules[package]).pop(name, None)
    del os.environ[COMPILE_THREADS]
    if before is not None:
        os.environ[COMPILE_THREADS] = before
    freeze_objects()


def freeze_objects() -> None:
    """Hide the objects that exist from the garbage collector: memory that it writes to is copied in each fork.

    Not where nanobind has bound modules, unless the interpreter is not taken apart at the end: nanobind then warns of
    objects that are left.
    """
    if os.environ.get(BRIEF_EXIT) or not binds_with_nanobind():
        gc.collect()
        gc.freeze()


def binds_with_nanobind() -> bool:
    """Return whether a module is bound to C++ by nanobind."""
    held = (getattr(module, "__dict__", {}) for module in list(sys.modules.values()))  # not all are modules
    return any(type(value).__name__ == "nb_func" for values in held for value in list(values.values()))


def try_import(module: str, function: str = "") -> None:
    """Import a module, or call its function; what fails here fails again where the script asks for it."""
    try:
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    except Exception:  # noqa: BLE001, S110
        pass


def why_not_forkable() -> str:
    """Return why this process must not be forked, "" where it may be."""
    torch = sys.modules["torch"]
    if getattr(getattr(torch, "cuda", None), "is_initialized", bool)():
        return "CUDA is initialized after the imports"
    pid = os.fork()  # what libraries do before a fork is to end their threads: OpenBLAS starts some when it is loaded
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    end = time.monotonic() + SETTLING
    while (threads := len(os.listdir("/proc/self/task"))) > 1:
        if time.monotonic() > end:
            return str(threads) + " threads are left after the imports"
        time.sleep(0.01)
    return ""
