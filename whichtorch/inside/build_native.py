"""Build C++ sources into an extension module for the torch of the interpreter that runs this.

    python build_native.py TARGET SOURCE...

It calls the compiler itself, as `torch.utils.cpp_extension` would have it called: that module imports
setuptools, and starts ninja, which an environment need not have. Runs in the environments under test, under
any Python that has torch wheels, with the standard library and torch only.

Exit code: the compiler's, or NO_COMPILER where there is none.
"""
# ruff: noqa: D103, PTH100, PTH118, PTH119, PTH120, PTH122, PTH123, UP031

import collections
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig

NO_COMPILER = 120  # no compiler exits so


def main():  # type: () -> int
    target, sources = sys.argv[1], sys.argv[2:]
    compiler = shlex.split(os.environ.get("CXX", ""))
    if not compiler:
        compiler = [path for path in map(shutil.which, ("g++", "clang++", "c++")) if path][:1]
    if not compiler or shutil.which(compiler[0]) is None:
        print("no C++ compiler:", compiler[0] if compiler else "g++, clang++ and c++ are not on PATH")
        return NO_COMPILER
    command = [*compiler, *flags(target), *sources, "-o", target, *libraries()]
    print(shlex.join(command), flush=True)
    return subprocess.call(command)


def home():  # type: () -> str
    import torch

    return os.path.dirname(os.path.abspath(str(torch.__file__)))


def flags(target):  # type: (str) -> list[str]
    """Return the compiler's flags: what the headers need, and no optimization, which would take longer."""
    import torch

    name = os.path.splitext(os.path.basename(target))[0]
    options = ["-shared", "-fPIC", "-O0", "-std=c++" + standard()]
    options += ["-DTORCH_EXTENSION_NAME=" + name, "-DTORCH_API_INCLUDE_EXTENSION_H"]
    options.append("-D_GLIBCXX_USE_CXX11_ABI=%d" % bool(torch._C._GLIBCXX_USE_CXX11_ABI))
    for kind in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):  # of the pybind11 that torch was built with, before 2.9
        value = getattr(torch._C, "_PYBIND11_" + kind, None)
        if value is not None:
            options.append('-DPYBIND11_%s="%s"' % (kind, value))
    include = os.path.join(home(), "include")
    folders = [include, os.path.join(include, "torch", "csrc", "api", "include"), sysconfig.get_path("include")]
    return options + ["-I" + folder for folder in folders]


def libraries():  # type: () -> list[str]
    folder = os.path.join(home(), "lib")
    names = ["-l" + name for name in ("torch_python", "torch", "torch_cpu", "c10")]
    undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    return ["-L" + folder, *names, "-Wl,-rpath," + folder, *undefined]


def standard():  # type: () -> str
    """Return the C++ standard that this torch's headers want: the one that its own builder asks for."""
    path = os.path.join(home(), "utils", "cpp_extension.py")
    with open(path, encoding="utf-8") as file:
        standards = re.findall(r"-std=c\+\+(\d+)", file.read())
    # its docstrings may name a later standard
    return collections.Counter(standards).most_common(1)[0][0] if standards else "17"


if __name__ == "__main__":
    sys.exit(main())
