"""For an observing attempt, note which operators a script dispatches, within which others and with which keys.

Exact, from the events of torch's profiler: the operators, their nesting, thread, and the devices of their tensors
(of all threads; before torch 2.7 of the main thread only). Exact, from a mode for torch functions: key sets, grad
mode and dispatch modes of the calls that the script makes from Python. Unlike a dispatch mode, this mode adds no
key to the dispatch, but Dynamo sees it and may compile differently. Inferred: an operator has the keys and the grad
mode of the call that led to it where its tensors are on that call's devices; else its keys follow from the device.

The observation is written at the end of the process, as JSON, into the file that WHICHTORCH_OBSERVE names. Children
are not observed. An error of the observer is written there, too, and the script goes on.
"""
# importing pathlib would take longer than all else here
# ruff: noqa: PTH123

from __future__ import annotations

import atexit
import json
import os
import threading

TYPE_CHECKING = False  # importing typing would slow every start
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

FILE = "WHICHTORCH_OBSERVE"
MOST_ROWS = 2000  # different ones; a script that declares conditions is small
_MARK = "whichtorch#"  # names the profiler's event around a call from Python
_MAIN = "main"
_BACKENDS = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta", "xpu": "XPU", "mps": "MPS", "hpu": "HPU"}


def install(after_import: Callable[[str, Callable[[ModuleType], object]], object]) -> None:
    """Start to observe as soon as torch has been imported."""
    file, pid = os.environ.pop(FILE, None), os.getpid()
    if file:
        after_import("torch", lambda torch: observe(torch, file, pid))


def observe(torch: Any, file: str, pid: int) -> None:
    """Start the profiler and the mode, and write what they see when this process ends; a forked child writes nothing.

    The script must not notice an error, so errors are written, too.
    """
    calls: list[dict[str, Any]] = []

    def finish() -> None:
        if os.getpid() != pid:
            return
        try:
            mode.__exit__(None, None, None)
            profiler.__exit__(None, None, None)
            roots = profiler.kineto_results.experimental_event_tree()
            write(file, {"operators": operators(roots, calls), "all_threads": all_threads})
        except Exception as error:  # noqa: BLE001
            write(file, {"problem": error_line(error)})

    try:
        profiler, all_threads = started_profiler(torch)
        thread = _MAIN if threading.current_thread() is threading.main_thread() else "other"
        with torch._C._profiler._RecordFunctionFast(_MARK + thread):
            pass  # shows which number the profiler gives this thread
        mode = recording_mode(torch, calls)
        mode.__enter__()
        atexit.register(finish)
    except Exception as error:  # noqa: BLE001
        write(file, {"problem": error_line(error)})


def write(path: str, seen: dict[str, Any]) -> None:
    """Write the file whole or not at all."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(seen, file)
    os.replace(path + ".part", path)  # noqa: PTH105


def error_line(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def started_profiler(torch: Any) -> tuple[Any, bool]:
    """Return a running profiler of CPU activity that keeps shapes, and whether it sees all threads.

    `torch.profiler`, which is built on this one, imports a thousand modules when it starts.
    """
    import warnings

    from torch._C._profiler import _ExperimentalConfig

    try:
        config = _ExperimentalConfig(profile_all_threads=True)
    except TypeError:  # an older torch
        config = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has much to say of cycles, which are none of the script's
        profiler = torch.autograd.profiler.profile(record_shapes=True, use_kineto=True, experimental_config=config)
        profiler.__enter__()
    return profiler, config is not None


def recording_mode(torch: Any, calls: list[dict[str, Any]]) -> Any:
    """Return a mode that notes each outermost call from Python and marks it among the profiler's events."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_flatten

    mark = torch._C._profiler._RecordFunctionFast
    count_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)

    class RecordingMode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
            keys: set[str] = set()
            for tensor in tensors:
                names = str(torch._C._dispatch_keys(tensor))  # DispatchKeySet(CPU, AutogradCPU)
                keys.update(part.strip() for part in names.partition("(")[2].rstrip(")").split(","))
            number = len(calls)
            calls.append(
                {
                    "keys": sorted(keys - {""}),
                    "devices": sorted({tensor.device.type for tensor in tensors}),
                    "grad_mode": bool(torch.is_grad_enabled()),
                    "python_key": "Python" in keys or count_modes() > 0,
                }
            )
            with mark(_MARK + str(number)):
                return function(*args, **kwargs)

    return RecordingMode()


def operators(roots: list[Any], calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the operators among the profiler's events, alike ones counted, the innermost enclosing one first."""
    rows: dict[str, dict[str, Any]] = {}
    main = next((root.start_tid for root in roots if str(root.name) == _MARK + _MAIN), None)
    waiting: list[tuple[Any, tuple[str, ...], dict[str, Any] | None]] = [(root, (), None) for root in reversed(roots)]
    while waiting:
        event, under, call = waiting.pop()
        name = str(event.name)
        if name.startswith(_MARK):
            number = name[len(_MARK) :]
            call = calls[int(number)] if number.isdigit() else None
        elif "::" in name and event.typed[0].name == "TorchOp":
            row = row_of(event, under, call, main)
            kept = rows.setdefault(json.dumps(row, sort_keys=True), row | {"count": 0})
            kept["count"] += 1
            under = (name, *under)
        waiting += [(child, under, call) for child in reversed(event.children)]
    return list(rows.values())[:MOST_ROWS]


def row_of(event: Any, under: tuple[str, ...], call: dict[str, Any] | None, main: Any) -> dict[str, Any]:
    """Return what is known of one dispatched operator."""
    devices = sorted(devices_of(event.typed[1].inputs))
    is_calls = call is not None and set(devices) <= set(call["devices"])
    # else those that plain tensors on these devices have
    names = [_BACKENDS.get(device, device.upper()) for device in devices]
    plain = sorted({*names, *("Autograd" + name for name in names), *(["ADInplaceOrView"] if names else [])})
    return {
        "op": str(event.name),
        "under": list(under),
        "devices": devices,
        "keys": call["keys"] if call is not None and is_calls else plain,
        "keys_from": "call" if is_calls else "device",
        "grad_mode": call["grad_mode"] if call is not None else None,
        "python_key": call["python_key"] if call is not None else None,
        "thread": None if main is None else "main" if event.start_tid == main else "other",
    }


def devices_of(inputs: Any) -> set[str]:
    """Return the types of the devices that an event's tensors are on; lists of tensors are looked into."""
    devices: set[str] = set()
    for value in inputs or ():
        if isinstance(value, (list, tuple)):
            devices |= devices_of(value)
        elif hasattr(value, "device"):
            devices.add(value.device.type)
    return devices
