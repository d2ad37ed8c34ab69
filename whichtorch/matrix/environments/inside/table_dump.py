"""Write an environment's dispatch tables. Runs inside it, so: Python 3.8, the standard library and torch.

    python tables.py ANSWER.json aten::mm [aten::add.Tensor ...]

writes {"aten::mm": the table as torch tells it, or null for an operator that is not there}.
"""

# One flat file without pathlib, as probe.py is.
# ruff: noqa: PTH100, PTH105, PTH120, PTH123, PERF203

from __future__ import annotations

import json
import os
import sys

# The folder of this script holds the tool's modules, which an environment must not see.
if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]


def main(path, operators):  # type: (str, list[str]) -> None
    """Ask torch for the table of each operator."""
    import torch

    answer = {}  # type: dict[str, str | None]
    for operator in operators:
        try:
            answer[operator] = torch._C._dispatch_dump_table(operator)
        except (RuntimeError, IndexError):  # no such operator
            answer[operator] = None
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os.replace(path + ".part", path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
