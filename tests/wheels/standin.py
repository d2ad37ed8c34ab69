"""Build wheels of a torch that imports at once, satisfies the probe's canary, and behaves as a test says."""

import base64
import difflib
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

_TORCH = '''\
"""A stand-in for torch: enough for the canary, and `behaviour` for a test's scripts to act on."""
import os as _os, time as _time

behaviour = {behaviour!r}
if behaviour == "fails to import":
    raise ImportError("libtorch_stand_in.so: cannot open shared object file")
if behaviour == "dies on import":
    _os.abort()
if behaviour == "hangs on import":
    while True:
        _time.sleep(3600)

from . import version
from .version import __version__


class Tensor:
    def __init__(self, shape, device):
        self.shape, self.device = tuple(shape), device

    def matmul(self, other):
        return Tensor((self.shape[0], other.shape[1]), self.device).of(self.shape[1])

    def of(self, value):
        self.value = value
        return self

    def sum(self):
        wrong = 1 if behaviour == "miscalculates" else 0
        return Tensor((), self.device).of(float(self.value * self.shape[0] * self.shape[1] + wrong))

    def item(self):
        return self.value


def ones(*shape, device="cpu"):
    return Tensor(shape, device).of(1)


empty = ones


if "compile" in behaviour:
    def compile(function, backend="inductor", disable=False):
        def call(shape):
            if shape == 7 and backend == "inductor" and behaviour == "cannot compile" and not disable:
                raise RuntimeError("cannot lower a shape of seven")
            return function(shape)
        return call


class __config__:
    @staticmethod
    def show():
        return "PyTorch built with:\\n  - GCC 13.3\\n  - Build settings: BLAS_INFO=mkl, USE_CUDA=OFF, "

    @staticmethod
    def parallel_info():
        return "ATen/Parallel:\\n\\tat::get_num_threads() : 2\\n"


class cuda:
    @staticmethod
    def is_available():
        return False


class _C:
    @staticmethod
    def _dispatch_dump_table(name):
        meta = "_meta_registrations.py" if behaviour == "Python meta kernels" else "RegisterMeta.cpp"
        rows = ["CPU: registered at /w/RegisterCPU.cpp:1", "Meta: registered at /w/" + meta + ":7"]
        return "\\n".join(row + " [kernel]" for row in rows)
'''
_VERSION = '__version__ = {version!r}\ngit_version = "0" * 40\ndebug = False\ncuda = None\nhip = None\n'


def build_wheel(
    folder: Path,
    version: str,
    *,
    tag: str = "py3-none-any",
    behaviour: str = "",
    requires: tuple[str, ...] = (),
    claims: str | None = None,
    padding: int = 0,
) -> Path:
    """Build a torch wheel of a version in `folder`, and return its path.

    `behaviour` becomes torch.behaviour; "fails to import", "dies on import", "hangs on import" and "miscalculates" do
    what they say; "Python meta kernels" moves the Meta row of every dispatch table; "can compile" and "cannot compile"
    bring torch.compile, which fails at a shape in the second. `claims` is the version its metadata gives, where that
    differs from the file's name; `padding` adds so many bytes to its size.
    """
    files = source_files(version, behaviour)
    if padding:
        files["torch/lib/padding.txt"] = "." * padding
    return _write(folder, "torch", version, tag, files, requires, claims or version)


def source_files(version: str, behaviour: str = "") -> dict[str, str]:
    """Return the modules of a stand-in torch by their paths, for what is built without a wheel."""
    return {
        "torch/__init__.py": _TORCH.format(behaviour=behaviour),
        "torch/version.py": _VERSION.format(version=version),
    }


def behaviour_patch(before: str, after: str) -> str:
    """Return the patch that changes the behaviour of a stand-in torch, as `git diff` writes it."""
    name = "torch/__init__.py"
    old, new = (source_files("", behaviour)[name].splitlines(keepends=True) for behaviour in (before, after))
    return "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))


def build_companion(
    folder: Path,
    name: str,
    version: str,
    *,
    padding: int = 0,
    requires: tuple[str, ...] = (),
    files: Mapping[str, str] | None = None,
) -> Path:
    """Build a wheel of another package, such as the numpy that is always installed with torch.

    `files` are further ones, or others, by their paths.
    """
    module = name.replace("-", "_")
    files = {f"{module}/__init__.py": f"__version__ = {version!r}\n", **(files or {})}
    if padding:
        files[f"{module}/padding.txt"] = "." * padding
    return _write(folder, module, version, "py3-none-any", files, requires, version)


def build_companions(folder: Path, **versions: tuple[str, ...]) -> Path:
    """Build the wheels of several versions of other packages, and return the folder."""
    for name, each in versions.items():
        for version in each:
            build_companion(folder, name, version)
    return folder


def build_pytest(folder: Path) -> Path:
    """Build a wheel that brings the pytest of the tests themselves, and the command `pytest`."""
    info = f"pytest-{pytest.__version__}.dist-info"
    files = {
        # with what its own .pth files add: a plugin of an editable install is imported, too
        "pytest_of_the_tests.pth": f"import site; site.addsitedir({str(Path(pytest.__file__).parent.parent)!r})\n",
        f"{info}/entry_points.txt": "[console_scripts]\npytest = pytest:console_main\n",
    }
    return _write(folder, "pytest", pytest.__version__, "py3-none-any", files, (), pytest.__version__)


def _write(
    folder: Path, name: str, version: str, tag: str, files: dict[str, str], requires: tuple[str, ...], claims: str
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{claims}.dist-info"
    metadata = [f"Name: {name}", f"Version: {claims}", *(f"Requires-Dist: {requirement}" for requirement in requires)]
    files = files | {
        f"{info}/METADATA": "Metadata-Version: 2.1\n" + "\n".join(metadata) + "\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = [f"{path},{_hash(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)  # without the time: the same wheel is the same file
    return wheel


def _hash(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
