"""Import what a command may import while it runs: every module of whichtorch, scipy and ruptures."""

import gc
import pkgutil
from importlib import import_module

import whichtorch

import_module("ruptures")
import_module("scipy.stats")

for module in pkgutil.walk_packages(whichtorch.__path__, "whichtorch."):
    if not module.name.startswith(("whichtorch.scenarios", "whichtorch.inside", "whichtorch.__main__")):
        import_module(module.name)

gc.collect()
gc.freeze()
