"""What a script needs that a run on this machine does not have, and what it does that no bug report needs.

All of it is read from the script's tree before anything runs.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping

from packaging.utils import canonicalize_name

from whichtorch.failures.failure import package_of
from whichtorch.source.names import dotted, loads_in
from whichtorch.source.syntax import texts_in

_DEVICE = re.compile(r"(?:cuda|mps|xpu|hip|npu|hpu|tpu|xla|privateuseone)(?::\d+)?$")
_ACCELERATORS = {"cuda": "a CUDA GPU", "hip": "a ROCm GPU", "mps": "an Apple GPU (MPS)", "xpu": "an Intel GPU (XPU)"}
_NEEDS_NONE = {  # of a module for devices
    "is_available", "is_built", "device_count", "is_initialized", "empty_cache", "manual_seed", "manual_seed_all",
}  # fmt: skip
_HOSTS = re.compile(r"--nnodes[= ]+(?!1\b)\d|--node[-_]rank\b|\bMASTER_ADDR=(?!localhost|127\.)\S")
_DATA_CALLS = {
    "from_pretrained": "weights of a model hub",
    "load_dataset": "a data set of a hub",
    "hub.load": "a model of torch.hub",
    "load_state_dict_from_url": "weights from the network",
    "download_url_to_file": "a file from the network",
    "urlretrieve": "a file from the network",
    "hf_hub_download": "a file of a hub",
    "snapshot_download": "files of a hub",
}
_READERS = {"load", "open", "read_csv", "imread", "loadtxt", "from_file", "read_image", "read_video", "Image.open"}
_FETCH = re.compile(r"\b(?:curl|wget|nc|ncat|ssh|scp)\b")
_BOMB = re.compile(r"\(\)\s*\{[^}]*\|[^}]*&")
_SHELLS = {"os.system", "os.popen", "subprocess.run", "subprocess.call", "subprocess.Popen", "subprocess.check_output"}
_SECRETS = re.compile(r"\.ssh\b|\.aws\b|\.netrc|id_rsa|\.gnupg|/etc/shadow|\.git-credentials|\.kube\b|\.docker/config")
_REMOVES = {"rmtree", "remove", "unlink", "rmdir"}
_SENDS = re.compile(r"(?:urlopen|requests\.(?:post|put|get)|socket\.(?:socket|create_connection)|HTTPConnection)$")


def uses_torch(tree: ast.Module) -> bool:
    """Return whether a script calls anything of torch, or of what is built on it."""
    bound = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if "torch" in (getattr(node, "module", None) or alias.name) or not _is_standard(node, alias)
    }
    return bool(bound & set(loads_in(tree)))


def _is_standard(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
    name = (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
    return name.partition(".")[0] in sys.stdlib_module_names


def hardware(tree: ast.Module, texts: Iterable[str]) -> str:
    """Return what hardware a script cannot do without, "" for none.

    A device that is only used if it is available does not count.
    """
    asked = {
        inner for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp) and _queries_device(node.test)
        for part in ([node.body] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse])
        for inner in ast.walk(part)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and _tolerates(node)):
            asked.update(ast.walk(node))
    for node in ast.walk(tree):
        if node in asked:
            continue
        match node:
            case ast.Constant(value=str(text)) if _DEVICE.match(text):
                return _named(text.partition(":")[0])
            case ast.Call(func=ast.Attribute(attr="cuda" | "xpu" | "mps" | "npu" as name)):
                return _named(name)
            case ast.Call(func=function) if match := re.match(r"torch\.(cuda|mps|xpu|hip)\.(\w+)", dotted(function)):
                if match[2] not in _NEEDS_NONE:
                    return _named(match[1])
            case ast.FunctionDef(decorator_list=decorators) if any("triton.jit" in ast.unparse(d) for d in decorators):
                return "a GPU for its Triton kernel"
            case ast.Constant(value="nccl" | "rccl" | "xccl"):
                return "GPUs for its NCCL process group"
    return "several hosts" if any(map(_HOSTS.search, texts)) else ""


def _tolerates(call: ast.Call) -> bool:
    """Return whether a call takes the name of a device that is not there, with a warning at most."""
    name = dotted(call.func).rpartition(".")[2] or getattr(call.func, "attr", "")
    return name in {"autocast", "GradScaler", "custom_fwd", "custom_bwd", "print", "startswith"}


def _queries_device(test: ast.expr) -> bool:
    return "is_available" in ast.unparse(test) or "device_count" in ast.unparse(test)


def may_use_accelerator(tree: ast.Module) -> bool:
    """Return whether a script uses an accelerator where there is one."""
    asks = any(isinstance(node, ast.If | ast.IfExp) and _queries_device(node.test) for node in ast.walk(tree))
    return asks or any(map(_DEVICE.match, texts_in(tree)))


def _named(device: str) -> str:
    return _ACCELERATORS.get(device, f"a device {device!r}")


def data(tree: ast.Module) -> str:
    """Return which files or downloads a script cannot do without, "" for none."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func) or getattr(node.func, "attr", "")
        for call, what in _DATA_CALLS.items():
            if name == call or name.endswith(f".{call}"):
                first = next((each.value for each in node.args if isinstance(each, ast.Constant)), "")
                return f"{what}, {first!r}" if first else what
        switches = [each.value for each in node.keywords if each.arg in {"download", "pretrained"}]
        if any(isinstance(switch, ast.Constant) and switch.value is True for switch in switches):
            return f"data that {name} downloads"
        if name.rpartition(".")[2] in _READERS and node.args and isinstance(node.args[0], ast.Constant):
            path = node.args[0].value
            mode = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else "r"
            is_written = sum(text == path for text in map(str, texts_in(tree))) > 1
            if isinstance(path, str) and "." in path and not is_written and str(mode).startswith("r"):
                return f"the file {path!r}"
    return ""


def dangers(tree: ast.Module) -> list[str]:
    """Return what a script does to the machine that it runs on, in words with its lines."""
    found: dict[str, int] = {}
    in_loops = {inner for node in ast.walk(tree) if isinstance(node, ast.For | ast.While) for inner in ast.walk(node)}
    texts, whole = list(texts_in(tree)), ast.unparse(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name, words = dotted(node.func) or getattr(node.func, "attr", ""), ast.unparse(node)
        what = ""
        if name in _SHELLS and _FETCH.search(words):
            what = "fetches or sends something in a shell"
        elif name in _SHELLS and _BOMB.search(words):
            what = "starts a fork bomb"
        elif name in _SHELLS and re.search(r"\brm\s+-\w*[rf]|\bmkfs|\bdd if=|>\s*/dev/sd|\bchmod -R", words):
            what = "deletes or overwrites files in a shell"
        elif name == "os.fork" and node in in_loops:
            what = "forks in a loop"
        elif name.rpartition(".")[2] in _REMOVES and re.search(r"expanduser|Path\.home|environ|['\"]/(?!tmp)", whole):
            what = "deletes files outside of its folder"
        elif name in {"exec", "eval", "pickle.loads", "marshal.loads"} and re.search(
            r"urlopen|b64decode|requests\.", words
        ):
            what = "runs code that it decodes or fetches"
        elif _SENDS.search(name) and (any(map(_SECRETS.search, texts)) or "environ" in whole):
            what = "reads secrets or variables, and uses the network"
        if what:
            found.setdefault(what, node.lineno)
    return [f"{what} (line {line})" for what, line in found.items()]


def packages(tree: ast.Module, named: Mapping[str, str], own: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the packages that a script needs, without torch and its `own` modules, as requirements.

    The versions are those that a report names. The table of PyPI says which package has a module: a package with the
    module's own name may be anybody's.
    """
    found: dict[str, None] = {}
    for module in imported_modules(tree):
        if f"{module}.py" in set(own):
            continue
        name = canonicalize_name(package_of(module) or module)
        if name in {"torch", "triton", "pytorch-triton"}:
            continue
        is_tied = name in {"torchvision", "torchaudio"}  # each release of these is for one of torch
        found[f"{name}=={named[name]}" if named.get(name) and not is_tied else name] = None
    return tuple(found)


def unknown_modules(tree: ast.Module, own: Iterable[str] = ()) -> list[str]:
    """Return the modules that a script imports, without its `own`, that no known package has.

    Whoever writes a report could publish a package for it, whose code would run outside of the sandbox.
    """
    return [name for name in imported_modules(tree) if f"{name}.py" not in set(own) and not package_of(name)]


def imported_modules(tree: ast.Module) -> list[str]:
    """Return the modules that a script imports, by their first names, those of Python and torch left out."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.append(node.module or "")
    left_out = {"", "torch", "functorch", *sys.stdlib_module_names}
    return [name for name in dict.fromkeys(name.partition(".")[0] for name in names) if name not in left_out]
