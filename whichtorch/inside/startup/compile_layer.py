"""Run what a script compiles or exports at another layer, and note what it compiles.

WHICHTORCH_LADDER is a JSON object. Its "layer" is "off" (nothing is compiled; what would be exported is called), or
one of torch's backends for debugging ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor"); without it
each call keeps its backend. A backend that is a script's own is never replaced. "dynamic" and "strict" (true, false)
do the same for dynamic shapes and for the mode of torch.export. "notes" is a file: a line of JSON for each call.
"without" is a part of the layer that torch's bisector is to leave out, where this torch has one that knows it, all of
it or what comes after "most" applications; "applied" is a file, with a line for each.
"graph" is a file for the graph that Dynamo gives to a backend, the last one of all: its code, its values by name, and
what of its module it reads, as `described_values.py` describes them.

A start-up hook: it runs in the environments under test, before a script, with the standard library only.
"""
# ruff: noqa: PTH118, PTH120, PTH123

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

OFF = "off"
_DESCRIBING = "described_values.py"  # in the folder above
_MOST_VALUES = 64  # elements of an input whose values are noted
_TORCH = ("torch.", "functorch.")  # modules of backends that torch brings


def install(after_import: Callable[[str, Callable[[Any], object]], None]) -> None:
    """Wrap torch.compile, torch._dynamo.optimize and torch.export.export once they are there."""
    for module in ("torch", "torch._dynamo", "torch.export"):
        after_import(module, _wrap)
    after_import("torch._dynamo.output_graph", lambda module: _watch_graphs(module.OutputGraph))


def _wrap(_module: Any) -> None:
    """Wrap the calls that are loaded by now: in some releases, `import torch` loads all of them."""
    calls = (
        ("torch", "compile", _compile),
        ("torch._dynamo", "optimize", _optimize),
        ("torch.export", "export", _export),
    )
    for module, name, call in calls:
        original = getattr(sys.modules.get(module), name, None)
        if original is not None and not hasattr(original, "_whichtorch_original"):
            wrapped = functools.wraps(original)(functools.partial(call, original))
            wrapped._whichtorch_original = original  # type: ignore[attr-defined]
            setattr(sys.modules[module], name, wrapped)


def _compile(original: Callable[..., Any], model: Any = None, **options: Any) -> Any:
    """Stand for torch.compile: called without a model it gives a decorator, which calls it again."""
    if model is None:
        return lambda function: _compile(original, function, **options)
    return original(model, **_changed("compile", options, options.get("fullgraph")))


def _optimize(original: Callable[..., Any], backend: Any = "inductor", *rest: Any, **options: Any) -> Any:
    """Stand for torch._dynamo.optimize; what torch.compile gives it was changed already."""
    if not isinstance(backend, str):
        return original(backend, *rest, **options)
    changed = _changed("optimize", dict(options, backend=backend), options.get("nopython"))
    return original(changed.pop("backend"), *rest, **changed)


def _changed(call: str, options: dict[str, Any], fullgraph: Any) -> dict[str, Any]:
    """Note a call that compiles; return its options, changed as the environment variable asks."""
    backend = options.get("backend", "inductor")
    is_own = _is_own(backend)
    name = backend if isinstance(backend, str) else str(getattr(backend, "__qualname__", type(backend).__qualname__))
    _note(call=call, backend=name, own=is_own, fullgraph=bool(fullgraph), dynamic=options.get("dynamic"))
    rung = _rung()
    layer = rung.get("layer")
    if layer == OFF:
        return dict(options, disable=True)
    changed = dict(options)
    if layer and not is_own:
        changed["backend"] = layer
        if layer != "inductor":  # only Inductor knows these
            changed.pop("mode", None)
            changed.pop("options", None)
    if layer and "without" in rung:
        with contextlib.suppress(ImportError):
            _switch_off(layer, rung["without"], int(rung.get("most", 0)), rung.get("applied"))
    if "dynamic" in rung:
        changed["dynamic"] = rung["dynamic"]
    return changed


def _switch_off(layer: str, part: str, most: int, notes: str | None) -> None:
    """Ask for a part of a layer to be left out after it was applied so often, by the variables of torch's bisector.

    That counts from 0: with a maximum of 0 the first application is made.
    """
    asked = {"BACKEND": layer, "SUBSYSTEM": part, "MAX": str(most - 1)}
    os.environ.update({"TORCH_BISECT_" + name: text for name, text in asked.items()})
    from torch._functorch import config as functorch
    from torch._inductor import compiler_bisector, config

    bisector = compiler_bisector.CompilerBisector
    bisector.bisection_enabled = True  # where it was imported before, without variables
    if notes and not isinstance(bisector.disable_subsystem, functools.partial):
        bisector.disable_subsystem = functools.partial(_note_applied, bisector.disable_subsystem, part, notes)
    getattr(compiler_bisector.get_env_val, "cache_clear", bool)()
    config.fx_graph_cache = False  # a graph that was compiled with the part would be found there
    functorch.enable_autograd_cache = False


def _note_applied(
    original: Callable[..., bool], part: str, notes: str, backend: str, subsystem: str, info: Any = None
) -> bool:
    """Stand for the bisector's question whether to leave something out; note what it is."""
    if subsystem == part:
        with contextlib.suppress(Exception), open(notes, "a", encoding="utf-8") as file:
            file.write((" ".join(str(info()).split()) if info else "") + "\n")
    return original(backend, subsystem, info)


def _export(original: Callable[..., Any], mod: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
    """Stand for torch.export.export; with the layer off it calls the module, and the script ends."""
    _note(call="export", strict=options.get("strict"))
    rung = _rung()
    if rung.get("layer") == OFF:
        mod(*args, **(kwargs or {}))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    if "strict" in rung:
        options["strict"] = rung["strict"]
    return original(mod, args, kwargs, **options)


def _watch_graphs(kind: Any) -> None:
    """Note each graph before it is given to its backend."""
    original = getattr(kind, "call_user_compiler", None)
    if original is None:
        return

    @functools.wraps(original)
    def noting(self: Any, gm: Any, *rest: Any, **options: Any) -> Any:
        file = _rung().get("graph")
        if file:
            with contextlib.suppress(Exception):  # a graph that cannot be noted is no start for a smaller script
                _note_graph(file, gm, self.example_inputs())
        return original(self, gm, *rest, **options)

    kind.call_user_compiler = noting


def _note_graph(file: str, gm: Any, inputs: Any) -> None:
    import runpy

    import torch

    described = runpy.run_path(os.path.join(os.path.dirname(os.path.dirname(__file__)), _DESCRIBING))["described"]
    nodes = list(gm.graph.nodes)
    given = [node.name for node in nodes if node.op == "placeholder"]
    reads = {str(node.target) for node in nodes if node.op in {"get_attr", "call_module"}}
    with torch._C.DisableTorchFunction():
        values = {node.name: described(torch, node.meta.get("example_value")) for node in nodes}
        values.update({name: described(torch, value, _MOST_VALUES) for name, value in zip(given, inputs)})
        graph = {
            "code": gm.code,
            "values": values,
            "attributes": {path: described(torch, functools.reduce(getattr, path.split("."), gm)) for path in reads},
        }
    with open(file, "w", encoding="utf-8") as notes:
        json.dump(graph, notes)


def _is_own(backend: Any) -> bool:
    """Return whether a backend is the script's own, or another library's."""
    if isinstance(backend, str):
        try:
            import torch._dynamo

            backend = torch._dynamo.lookup_backend(backend)
        except Exception:  # noqa: BLE001  # torch itself is to say that there is no such backend
            return False
    module = getattr(backend, "__module__", None) or type(backend).__module__
    return not str(module).startswith(_TORCH)


def _rung() -> dict[str, Any]:
    """Return what is asked for; read at each call, because a forked process has other variables than at its imports."""
    asked: dict[str, Any] = json.loads(os.environ.get("WHICHTORCH_LADDER", "{}"))
    return asked


def _note(**fields: object) -> None:
    rung = _rung()
    if "notes" in rung:
        with open(rung["notes"], "a", encoding="utf-8") as file:
            file.write(json.dumps(fields, default=str) + "\n")
