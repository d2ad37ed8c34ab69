"""Canary and fingerprint of an environment. Runs inside it, so: Python 3.8, the standard library and torch.

    python probe.py ANSWER.json [MODULE...]

writes one JSON object: {"step": what was begun last, "error": its traceback or null, "python": ..., ...}.
It is rewritten before every step, so that after a crash or a hang the step is known. The modules must be importable.
"""

# One flat file without pathlib, because it starts faster that way under every Python.
# ruff: noqa: PTH100, PTH207, PTH105, PTH110, PTH118, PTH119, PTH120, PTH123, BLE001, PERF203, TRY301, F401

from __future__ import annotations

import glob
import itertools
import json
import os
import platform
import re
import sys
import sysconfig
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_WATCHED = 20000  # Python files: torch has 2,500
NOT_WATCHED = ("site-packages", "dist-packages", "node_modules", "build")

# The folder of this script holds the tool's modules, which an environment must not see.
if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]


def main(path, *modules):  # type: (str, str) -> int
    """Run the canary, then take the fingerprint; exit 1 where the canary fails."""
    answer = {"step": "start", "error": None}  # type: dict[str, object]

    def begin(step):  # type: (str) -> None
        answer["step"] = step
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(answer, file)
        os.replace(path + ".part", path)

    try:
        begin("start")
        answer["python"] = platform.python_version() + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
        answer["executable"] = sys.executable
        answer["packages"] = packages()
        begin("import torch")
        import torch

        answer["torch"] = str(torch.__version__)
        answer["watched"] = watched(torch)
        begin("matmul on the CPU")
        if torch.ones(4, 3).matmul(torch.ones(3, 2)).sum().item() != 24.0:
            raise RuntimeError("4x3 ones times 3x2 ones do not sum to 24")
        begin("matmul on the meta device")
        if tuple(torch.empty(4, 3, device="meta").matmul(torch.empty(3, 2, device="meta")).shape) != (4, 2):
            raise RuntimeError("a 4x3 times a 3x2 meta tensor is not 4x2")
        for name in modules:
            if name not in sys.modules:
                begin("import " + name)
                __import__(name)
        begin("fingerprint")
        answer["fingerprint"] = fingerprint(torch)
        begin("done")
    except BaseException as error:
        answer["error"] = traceback.format_exc()
        answer["problem"] = type(error).__name__ + ": " + (str(error).strip().splitlines() or [""])[0]
        begin(str(answer["step"]))
        traceback.print_exc()
        return 1
    return 0


def packages():  # type: () -> dict[str, str]
    """Return name and version of every distribution that this interpreter sees."""
    from importlib import metadata

    found = {}  # type: dict[str, str]
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)
    return dict(sorted(found.items()))


def watched(torch):  # type: (object) -> list[str]
    """Return the files and folders whose time of change tells that the environment has changed."""
    folders = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    home = os.path.dirname(os.path.abspath(torch.__file__))  # type: ignore[attr-defined]
    libraries = [path for names in ("_C*.so", "lib/*.so*") for path in sorted(glob.glob(os.path.join(home, names)))]
    sources = (path for root in [home, *editable()] for path in python_files(root))
    found = [*folders, *libraries, *itertools.islice(sources, MOST_WATCHED)]
    return [path for path in dict.fromkeys(found) if os.path.exists(path)]


def editable():  # type: () -> list[str]
    """Return the folders of projects that were installed with `pip install -e`: their files are changed in place."""
    from importlib import metadata
    from urllib.parse import unquote, urlparse

    found = []
    for distribution in metadata.distributions():
        try:
            direct_url = json.loads(distribution.read_text("direct_url.json") or "{}")
            if direct_url.get("dir_info", {}).get("editable"):
                found.append(unquote(urlparse(direct_url["url"]).path))
        except (AttributeError, LookupError, ValueError):
            continue
    return sorted(found)


def python_files(root):  # type: (str) -> Iterator[str]
    """Yield the Python files below a folder, without those of hidden folders, of builds and of packages."""
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith(".") and name not in NOT_WATCHED)
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def fingerprint(torch):  # type: (object) -> dict[str, object]
    """Return what tells one torch from another; a question that an old torch does not know is left out."""
    version = getattr(torch, "version", None)
    found = {
        "torch": str(torch.__version__),  # type: ignore[attr-defined]
        "python": sys.version.replace("\n", " "),
        "abi": str(sys.implementation.cache_tag) + sys.abiflags,
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "machine": platform.machine(),
        "system": platform.system() + " " + platform.release(),
        "glibc": " ".join(platform.libc_ver()).strip(),
    }  # type: dict[str, object]
    found.update((name, getattr(version, name, None)) for name in ("git_version", "debug", "cuda", "hip", "xpu"))
    questions = {
        "numpy": lambda: __import__("numpy").__version__,
        "config": lambda: config(torch),
        "parallel": lambda: parallel(torch),
        "openmp_loaded": lambda: loaded(r"(lib[gi]?omp|libiomp)"),
        "blas_loaded": lambda: loaded(r"lib(mkl_rt|mkl_core|openblas|blas|cblas|nvpl_blas|armpl)"),
        "cuda_available": lambda: bool(torch.cuda.is_available()),  # type: ignore[attr-defined]
        "gpus": lambda: gpus(torch),
        "cpu": lambda: cpu(),
        "meta_mm": lambda: meta_mm(torch),
        "dispatch": lambda: dispatch(torch),
    }  # type: dict[str, Callable[[], object]]
    for name, ask in questions.items():
        try:
            found[name] = ask()
        except Exception as error:
            found[name] = "unknown (" + type(error).__name__ + ")"
    return found


def config(torch):  # type: (object) -> dict[str, object]
    """Return torch.__config__.show() condensed: components, and settings without compiler warnings."""
    components = []  # type: list[str]
    settings = {}  # type: dict[str, str]
    for line in torch.__config__.show().splitlines():  # type: ignore[attr-defined]
        text = line.strip().lstrip("- ").strip()
        if text.startswith("Build settings:"):
            for setting in re.split(r",\s+(?=[A-Z0-9_]+=)", text[len("Build settings:") :].strip(" ,")):
                name, _, value = setting.partition("=")
                if name.strip() == "CXX_FLAGS":  # definitions change what torch does, warnings do not
                    value = " ".join(re.findall(r"-D\S+", value))
                settings[name.strip()] = re.sub(r"\s+", " ", value.strip(" ,"))
        elif text and not text.startswith("PyTorch built with"):
            components.append(text)
    return {"components": components, "settings": settings}


def parallel(torch):  # type: (object) -> dict[str, str]
    """Return thread counts and OpenMP as torch.__config__.parallel_info() tells them."""
    found = {}  # type: dict[str, str]
    for line in map(str.strip, torch.__config__.parallel_info().splitlines()):  # type: ignore[attr-defined]
        name, colon, value = line.partition(" : ")
        if colon:
            found[name.strip()] = value.strip()
        elif re.match(r"(OpenMP|Intel|OpenBLAS|MKL)", line):
            found.setdefault(line.split(" ")[0], line)
    return found


def loaded(pattern):  # type: (str) -> list[str]
    """Return the file names of the shared libraries in this process that match, where /proc tells."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {line.split(None, 5)[-1].strip() for line in file if "/" in line}
    names = {os.path.basename(path) for path in paths}
    return sorted(name for name in names if re.match(pattern, name))


def gpus(torch):  # type: (object) -> list[str]
    """Return the names of the GPUs that this torch can use."""
    cuda = torch.cuda  # type: ignore[attr-defined]
    return [cuda.get_device_name(index) for index in range(cuda.device_count())] if cuda.is_available() else []


def cpu():  # type: () -> dict[str, object]
    """Return model and number of the CPUs that this process may use."""
    model = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        model = names[0] if names else model
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"model": model, "count": os.cpu_count(), "usable": usable}


def meta_mm(torch):  # type: (object) -> dict[str, object]
    """Return where the Meta kernel of aten::mm is registered; one in Python takes the GIL."""
    table = torch._C._dispatch_dump_table("aten::mm")  # type: ignore[attr-defined]
    row = re.search(r"^\s*Meta: (?:registered at )?(.*?):(\d+) \[(.*)\]\s*$", table, re.MULTILINE)
    if row is None:
        return {"registered": None, "kind": None, "python": None}
    path, line, kind = row.groups()
    # torch 2.0 does not say where a kernel registered from Python comes from
    unnamed = path == "/dev/null"
    place = (path if unnamed else os.path.basename(path)) + ":" + line
    return {"registered": place, "kind": kind, "python": unnamed or path.endswith(".py")}


def dispatch(torch):  # type: (object) -> dict[str, str]
    """Return how calls of some operators are dispatched: rows of the keys that a plain call can have, paths cut."""
    keys = re.compile(r"(Undefined|CPU|CUDA|Meta|Python|Functionalize|ADInplaceOrView|Auto\w+(CPU|CUDA|Meta|Other)): ")
    found = {}  # type: dict[str, str]
    for name in ("aten::mm", "aten::add.Tensor", "aten::linear"):
        table = torch._C._dispatch_dump_table(name)  # type: ignore[attr-defined]
        rows = [line for line in table.splitlines() if keys.match(line)]
        found[name] = "\n".join(re.sub(r"at (?!/dev/null:)\S*/([^/ ]+/[^/ ]+:\d+)", r"at \1", row) for row in rows)
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
