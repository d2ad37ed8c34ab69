"""Apply a config's hooks before a cell's script starts, in its process and in its children.

This folder stands first on PYTHONPATH, so Python's `site` imports this file at start-up, and the command
stays `python script.py`. Afterwards the folder leaves sys.path, and the `sitecustomize` that this one
hid, if any, is imported in its place: the script sees what it would have seen.

Runs in the environments under test, under any Python that has torch wheels, with the standard library
only, and before every script: it must stay fast.
"""
# importing pathlib would take longer than all else here
# ruff: noqa: PTH118, PTH120, PTH123

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing would take longer, too
if TYPE_CHECKING:
    from typing import Any, NoReturn

HOOKS = "WHICHTORCH_HOOKS"  # names of the files beside this one, separated by commas
NOT_APPLICABLE = 125


def apply_hook(folder: str, name: str) -> None:
    """Run a hook's `install`, telling it how to stop the process if it fails later."""
    path = os.path.join(folder, name + ".py")
    try:
        # not an import: a script may have a module of the same name
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec")
        hook: dict[str, Any] = {"__name__": "whichtorch_" + name, "__file__": path}
        exec(code, hook)  # noqa: S102
        hook["install"](lambda reason: refuse(name, reason))
    except FileNotFoundError:
        refuse(name, "there is no hook of that name")
    except Exception as error:  # noqa: BLE001  # whatever it is, it must be loud
        refuse(name, error)


def refuse(name: str, reason: object) -> NoReturn:
    """End the process at once: a result under a config that was not applied would be a lie.

    Nothing that the script or torch does can catch this.
    """
    if isinstance(reason, BaseException):
        reason = f"{type(reason).__name__}: {reason}"
    message = f"whichtorch: hook {name} could not be applied: {reason}\n"
    os.write(2, message.encode("utf-8", "replace"))
    os._exit(NOT_APPLICABLE)


def leave(folder: str) -> None:
    """Take `folder` off sys.path and import the sitecustomize that stands behind it."""
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.realpath(entry) != folder]
    own = sys.modules.pop(__name__)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401  # another one
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules[__name__] = own  # the import under way looks for it


if __name__ == "sitecustomize":
    _folder = os.path.dirname(os.path.realpath(__file__))
    for _name in os.environ.get(HOOKS, "").split(","):
        if _name.strip():
            apply_hook(_folder, _name.strip())
    leave(_folder)
