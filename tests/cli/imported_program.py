"""Import what forked commands may import: the modules of whichtorch but those for MCP, and what rich imports late."""

import gc
import pkgutil
from importlib import import_module

import whichtorch

import_module("rich._emoji_codes")

LEFT_OUT = ("scenarios", "inside", "__main__", "cli.tool_server")
for module in pkgutil.walk_packages(whichtorch.__path__, "whichtorch."):
    if not module.name.startswith(tuple(f"whichtorch.{name}" for name in LEFT_OUT)):
        import_module(module.name)

gc.collect()
gc.freeze()
