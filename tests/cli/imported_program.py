"""Import what forked commands may import: the modules of whichtorch but those for MCP and pytest, scipy, ruptures."""

import gc
import pkgutil
from importlib import import_module

import whichtorch

import_module("ruptures")
import_module("scipy.stats")

LEFT_OUT = ("scenarios", "inside", "__main__", "cli.tool_server", "watch.pytest_plugin")
for module in pkgutil.walk_packages(whichtorch.__path__, "whichtorch."):
    if not module.name.startswith(tuple(f"whichtorch.{name}" for name in LEFT_OUT)):
        import_module(module.name)

gc.collect()
gc.freeze()
