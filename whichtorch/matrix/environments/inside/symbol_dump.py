"""Write the names of what torch's binary offers to Python. Runs inside an environment, so: Python 3.8 and torch.

    python symbols.py ANSWER.json

writes a sorted list of dotted names: "torch._C._jit_pass_inline", "torch._C.Graph.nodes", "torch.ops.aten.mm". Only
operators that are not registered from Python count.
"""

# One flat file without pathlib, as probe.py is.
# ruff: noqa: PTH100, PTH105, PTH120, PTH123

from __future__ import annotations

import json
import os
import sys
import types

# The folder of this script holds the tool's modules, which an environment must not see.
if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]


def members(value, name, seen, found):  # type: (object, str, set[int], set[str]) -> None
    """Add the dotted names of what is in a native module or class."""
    if id(value) in seen:
        return
    seen.add(id(value))
    for each, inner in list(vars(value).items()):
        if each.startswith("__"):
            continue
        found.add(name + "." + each)
        is_native = isinstance(inner, types.ModuleType) and inner.__name__.startswith("torch._C")
        is_class = isinstance(inner, type) and str(getattr(inner, "__module__", "")).startswith("torch._C")
        if is_native or is_class:
            members(inner, name + "." + each, seen, found)


def operators(torch, found):  # type: (types.ModuleType, set[str]) -> None
    """Add the operators whose schema C++ registers."""
    for name in torch._C._dispatch_get_all_op_names():
        try:
            dump = torch._C._dispatch_dump(name)
        except RuntimeError:  # an operator that nothing can be asked about
            continue
        if ".py:" not in dump.partition("debug:")[2].partition("\n")[0]:  # where its schema was registered
            found.add("torch.ops." + name.partition(".")[0].replace("::", "."))
            found.add("torch.ops." + name.replace("::", "."))


def main(path):  # type: (str) -> None
    """Ask torch for everything."""
    import torch

    found = set()  # type: set[str]
    members(torch._C, "torch._C", set(), found)
    operators(torch, found)
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(sorted(found), file)
    os.replace(path + ".part", path)


if __name__ == "__main__":
    main(sys.argv[1])
