"""Leave aten's Meta kernels to C++: take away those that torch registers from Python.

`torch._meta_registrations` registers Python functions as Meta kernels, and these need the GIL. Without
them the dispatcher falls back to the C++ kernels (RegisterMeta_0.cpp) that they replaced. A torch that
never imports that module has nothing to take away, and goes on as it is.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would slow every start
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Callable

MODULE = "torch._meta_registrations"


def install(after_import: Callable[[str, Callable[[ModuleType], object]], object]) -> None:
    """Plan to take the kernels away when the module has registered them; torch itself is not imported here."""
    after_import(MODULE, destroy_libraries)


def destroy_libraries(module: ModuleType) -> None:
    """Undo what the module's own libraries registered for aten under the Meta key."""
    libraries = [
        value
        for value in vars(module).values()
        if getattr(value, "ns", None) == "aten" and getattr(value, "dispatch_key", None) == "Meta"
    ]
    if not libraries:
        raise LookupError(f"{MODULE} holds no library of Meta kernels for aten")
    for library in libraries:
        if hasattr(library, "_destroy"):
            library._destroy()
        else:  # before 2.2; the C++ library takes its kernels along when the last reference goes
            library.m = None
