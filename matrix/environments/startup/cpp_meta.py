"""Leave aten's Meta kernels to C++: take away those that torch registers from Python.

`torch._meta_registrations` registers Python functions as Meta kernels, and these need the GIL. Without
them the dispatcher falls back to the C++ kernels (RegisterMeta_0.cpp) that they replaced. A torch that
never imports that module has nothing to take away, and goes on as it is.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing would slow every start
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

MODULE = "torch._meta_registrations"


def install(give_up: Callable[[object], object]) -> None:
    """Watch for the module; torch itself is not imported here. `give_up(reason)` ends the process."""
    sys.meta_path.insert(0, Watcher(give_up))


class Watcher:
    """A finder that finds nothing itself, but has the module's loader call `destroy_libraries` at its end."""

    def __init__(self, give_up: Callable[[object], object]) -> None:
        self.give_up = give_up

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that the other finders give for the module, its loader wrapped."""
        if name != MODULE:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                self.wrap(spec.loader)
                return spec
        return None

    def wrap(self, loader: Any) -> None:
        """Replace `exec_module` on this one loader, for this one call: all else about it stays."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            try:
                destroy_libraries(module)
            except Exception as error:  # noqa: BLE001  # whatever it is, it must be loud
                self.give_up(error)

        try:
            loader.exec_module = exec_module
        except Exception as error:  # noqa: BLE001
            self.give_up(error)


def destroy_libraries(module: ModuleType) -> None:
    """Undo what the module's own libraries registered for aten under the Meta key."""
    found = [
        value
        for value in vars(module).values()
        if getattr(value, "ns", None) == "aten" and getattr(value, "dispatch_key", None) == "Meta"
    ]
    if not found:
        raise LookupError(f"{MODULE} holds no library of Meta kernels for aten")
    for library in found:
        if hasattr(library, "_destroy"):
            library._destroy()
        else:  # before 2.2; the C++ library takes its kernels along when the last reference goes
            library.m = None
