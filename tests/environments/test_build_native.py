"""The builder that runs inside environments, with a package called torch and a compiler that stand in."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from whichtorch.inside.build_native import NO_COMPILER
from whichtorch.matrix.native_modules import BUILDER

COMPILER = f"""#!{sys.executable}
import sys
open(sys.argv[sys.argv.index("-o") + 1], "w").write("\\n".join(sys.argv[1:]))
"""


@pytest.fixture
def fake_torch(tmp_path: Path) -> Path:
    """Return a folder with a package `torch` whose builder mostly asks for C++14."""
    package = tmp_path / "site" / "torch"
    (package / "utils").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class _C:\n    _GLIBCXX_USE_CXX11_ABI = False\n    _PYBIND11_COMPILER_TYPE = '_gcc'\n"
    )
    (package / "utils" / "cpp_extension.py").write_text("-std=c++14 -std=c++20 -std=c++14\nimport setuptools")
    return package.parent


def build(folder: Path, fake_torch: Path, compiler: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": str(fake_torch), "CXX": compiler}
    command = [sys.executable, str(BUILDER), str(folder / "worker.so"), str(folder / "worker.cpp")]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_the_compiler_gets_what_torch_s_headers_need(tmp_path: Path, fake_torch: Path) -> None:
    """Its flags follow the torch that is there: standard, ABI, folders; what imports setuptools is only read."""
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    ended = build(tmp_path, fake_torch, f"{compiler} -DMORE")
    assert ended.returncode == 0, ended.stderr
    flags = (tmp_path / "worker.so").read_text().splitlines()
    assert {
        "-DMORE",
        "-std=c++14",
        "-DTORCH_EXTENSION_NAME=worker",
        "-D_GLIBCXX_USE_CXX11_ABI=0",
        '-DPYBIND11_COMPILER_TYPE="_gcc"',
        f"-I{fake_torch}/torch/include",
        f"-L{fake_torch}/torch/lib",
        str(tmp_path / "worker.cpp"),
    } <= set(flags)


def test_no_compiler_has_an_exit_code_of_its_own(tmp_path: Path, fake_torch: Path) -> None:
    """The tool can tell it from a source that does not compile."""
    ended = build(tmp_path, fake_torch, "none-such")
    assert (ended.returncode, ended.stdout) == (NO_COMPILER, "no C++ compiler: none-such\n")
