"""Tiny stand-in wheels of torch, and an index that serves them; see `standin` and `index`."""

from tests.wheels.index import Index, serve
from tests.wheels.standin import (
    behaviour_patch,
    build_companion,
    build_companions,
    build_pytest,
    build_wheel,
    source_files,
)

__all__ = [
    "Index",
    "behaviour_patch",
    "build_companion",
    "build_companions",
    "build_pytest",
    "build_wheel",
    "serve",
    "source_files",
]
