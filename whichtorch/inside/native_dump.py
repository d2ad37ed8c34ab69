"""Write what torch's binary says of itself. Runs inside an environment, so: Python 3.8 and torch.

    python native_dump.py ANSWER.json

writes a sorted list of the dotted names that it offers to Python: "torch._C._jit_pass_inline",
"torch._C.Graph.nodes", "torch.ops.aten.mm". Only operators that are not registered from Python count.

    python native_dump.py ANSWER.json aten::mm [aten::add.Tensor ...]

writes {"aten::mm": the dispatch table as torch prints it, or null for an operator that does not exist}.
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


def dump_of(dump, operator):  # type: (types.FunctionType, str) -> str | None
    """Return what one of torch's dump functions prints of an operator, None where there is no such operator."""
    try:
        return str(dump(operator))
    except (RuntimeError, IndexError):
        return None


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


def symbols(torch):  # type: (types.ModuleType) -> set[str]
    """Return the names of what is in the binary, and of the operators whose schema C++ registers."""
    found = set()  # type: set[str]
    members(torch._C, "torch._C", set(), found)
    for name in torch._C._dispatch_get_all_op_names():
        dump = dump_of(torch._C._dispatch_dump, name)
        if dump is not None and ".py:" not in dump.partition("debug:")[2].partition("\n")[0]:  # where it is registered
            found.add("torch.ops." + name.partition(".")[0].replace("::", "."))
            found.add("torch.ops." + name.replace("::", "."))
    return found


def main(path, operators):  # type: (str, list[str]) -> None
    """Write the tables of operators; without operators, the names of everything that the binary offers."""
    import torch

    tables = {operator: dump_of(torch._C._dispatch_dump_table, operator) for operator in operators}
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(tables if operators else sorted(symbols(torch)), file)
    os.replace(path + ".part", path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
