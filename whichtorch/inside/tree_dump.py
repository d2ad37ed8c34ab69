"""Write the Python files of torch, for a machine that does not have them. Runs inside an environment: Python 3.8.

    python tree_dump.py FOLDER

writes JSON files into the folder. Each holds the texts of some files by their paths in site-packages; the RECORD of the
installed wheel is one of them. Bytes that are not UTF-8 become surrogates.
"""

# One flat file without pathlib, as probe.py is.
# ruff: noqa: PTH100, PTH118, PTH120, PTH123, PTH207

from __future__ import annotations

import glob
import json
import os
import sys
import sysconfig

AT_ONCE = 200  # files of torch in one JSON file
# What a wheel of torch installs, as fix/package_trees.py has it.
PACKAGES = ("torch", "torchgen", "functorch")

# The folder of this script holds the tool's modules, which an environment must not see.
if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]


def main(target):  # type: (str) -> None
    """Write the files in the packages' folders."""
    root = sysconfig.get_paths()["purelib"]
    paths = glob.glob(os.path.join(root, "torch-*.dist-info", "RECORD"))
    for package in PACKAGES:
        for folder, _, names in os.walk(os.path.join(root, package)):
            paths += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")]
    for first in range(0, len(paths), AT_ONCE):
        texts = {}
        for path in paths[first : first + AT_ONCE]:
            with open(path, "rb") as file:
                texts[os.path.relpath(path, root)] = file.read().decode("utf-8", "surrogateescape")
        with open(os.path.join(target, f"{first}.json"), "w", encoding="ascii") as answer:
            json.dump(texts, answer)


if __name__ == "__main__":
    main(sys.argv[1])
