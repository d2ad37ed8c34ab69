"""Writes down what some names of a script stand for, at some of its places, while it runs.

The script calls `record` there itself: its source was changed for that. A file holds a JSON object for all places, as
they were when they were reached last: {place: {path: what `described_values.py` says}}. A path is a name, or a name
with attributes: "self.weight".

Runs in the environments under test, under any Python that has torch wheels, with the standard library only.
"""
# ruff: noqa: PTH118, PTH120, PTH123

from __future__ import annotations

import json
import os
import runpy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_VALUES = 64  # elements of a tensor whose values are written
MISSING = object()


class Recorder:
    """What is known of the places so far, and the file that it is in."""

    def __init__(self, file: str, paths: dict[str, list[str]]) -> None:
        beside = os.path.join(os.path.dirname(__file__), "described_values.py")
        self.described = runpy.run_path(beside)["described"]
        self.file, self.paths = file, paths
        self.places = {}  # type: dict[str, dict[str, Any]]
        self.owner = os.getpid()

    def record(self, place: str, names: dict[str, Any]) -> None:
        """Write down the values of a place's paths."""
        if os.getpid() != self.owner:
            return
        import torch

        with torch._C.DisableTorchFunction():
            self.places[place] = {
                path: self.described(torch, value, MOST_VALUES)
                for path in self.paths[place]
                for value in [reached(names, path)]
                if value is not MISSING
            }
        whole = self.file + ".new"
        with open(whole, "w", encoding="utf-8") as file:
            json.dump(self.places, file)
        os.replace(whole, self.file)  # noqa: PTH105


def reached(names: dict[str, Any], path: str) -> Any:
    """Return what a path leads to, MISSING where it leads nowhere."""
    first, *attributes = path.split(".")
    value = names.get(first, MISSING)
    try:
        for attribute in attributes:
            value = getattr(value, attribute)
    except Exception:  # noqa: BLE001  # whatever an attribute does when it is asked for
        return MISSING
    return value
