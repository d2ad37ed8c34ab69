"""Start-up hooks: applied to a cell's process and its children, unseen by its script, loud when they fail.

Plain Python programs in processes of their own; a package called torch stands in for the real one.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from whichtorch.inside.startup import FOLDER, sitecustomize

FAKE_TORCH = """
class Library:
    def __init__(self, ns, kind, dispatch_key):
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self.m = "kernels"

    def _destroy(self):
        self.m = None

from torch import _meta_registrations
"""
FAKE_REGISTRATIONS = """
from torch import Library
_meta_lib_dont_use_me_use_register_meta = Library("aten", "IMPL", "Meta")
_for_mkldnn = Library("mkldnn", "IMPL", "Meta")
finished = True
"""
LATE = """
def install(after_import):
    after_import("colorsys", fail)

def fail(module):
    raise ValueError("does not fit")
"""
SHOW_KERNELS = """
from torch import _meta_registrations as module
print(module._meta_lib_dont_use_me_use_register_meta.m, module._for_mkldnn.m, module.finished)
"""


@pytest.fixture
def fake_torch(tmp_path: Path) -> Path:
    """Return a folder with a package `torch` that registers Meta kernels as the real one does."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE_TORCH)
    (package / "_meta_registrations.py").write_text(FAKE_REGISTRATIONS)
    return package.parent


def run(
    script: Path | str, *path: Path, hooks: str = "", folder: Path = FOLDER, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script, or a program's text, as a cell's process is run: with the start-up folder in front."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ["PYTHONPATH"] = os.pathsep.join(map(str, (folder, *path)))
    environ["WHICHTORCH_HOOKS"] = hooks
    command = [sys.executable, "-c", script] if isinstance(script, str) else [sys.executable, str(script)]
    return subprocess.run(command, env=environ, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False)


def copied(tmp_path: Path, **hooks: str) -> Path:
    """Return a copy of the start-up folder, reached through a link, that holds other hooks."""
    folder = tmp_path / "startup"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text((FOLDER / "sitecustomize.py").read_text())
    for name, text in hooks.items():
        (folder / f"{name}.py").write_text(text)
    link = tmp_path / "link"
    link.symlink_to(folder)
    return link


def test_without_hooks_nothing_is_left_to_see() -> None:
    """A script finds the sys.path, sys.meta_path and arguments that it would have found."""
    show = "import sys; print(sys.path, list(map(type, sys.meta_path)), sys.argv, sys.flags)"
    plain = subprocess.run(
        [sys.executable, "-c", show],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (plain.stdout, plain.stderr) == (run(show).stdout, run(show).stderr)


def test_the_folder_leaves_the_path_through_a_link(tmp_path: Path) -> None:
    """The start-up folder is taken off sys.path by what it is, not by how it was written."""
    ended = run("import sys; print(sys.path)", folder=copied(tmp_path))
    assert str(tmp_path) not in ended.stdout
    assert ended.returncode == 0


def test_a_hidden_sitecustomize_still_runs(tmp_path: Path) -> None:
    """The sitecustomize that the folder hides is imported after the hooks, under its own name."""
    (tmp_path / "sitecustomize.py").write_text("import sys; print('mine, after', sys.hooked)")
    folder = copied(tmp_path, mark="import sys\ndef install(after_import):\n    sys.hooked = 'the hook'")
    ended = run("import sitecustomize; print(sitecustomize.__file__)", tmp_path, hooks="mark", folder=folder)
    assert ended.stdout.splitlines() == ["mine, after the hook", str(tmp_path / "sitecustomize.py")]
    assert ended.stderr == ""


def test_errors_of_a_hidden_sitecustomize_are_reported_as_ever(tmp_path: Path) -> None:
    """Python says what it says of a broken sitecustomize, and the script runs."""
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('not ours')")
    ended = run("print('ran')", tmp_path)
    assert ended.stdout == "ran\n"
    assert "Error in sitecustomize" in ended.stderr
    assert "ValueError: not ours" in ended.stderr


def test_a_missing_import_of_a_hidden_sitecustomize_is_not_swallowed(tmp_path: Path) -> None:
    """That a hidden sitecustomize cannot import something is not taken for its absence."""
    (tmp_path / "sitecustomize.py").write_text("import no_such_module")
    ended = run("print('ran')", tmp_path)
    assert "no_such_module" in ended.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def install(after_import):\n    raise OSError('no room')", "OSError: no room"),
        (LATE, "ValueError: does not fit"),
        ("this is no Python", "SyntaxError: "),
        ("", "KeyError: 'install'"),
    ],
)
def test_a_hook_that_fails_ends_the_process(tmp_path: Path, text: str, reason: str) -> None:
    """No script runs under a config that it did not get: one line on stderr, and the exit code of a skip."""
    ended = run("import colorsys; print('ran')", hooks="bad", folder=copied(tmp_path, bad=text))
    assert (ended.returncode, ended.stdout) == (125, "")
    assert ended.stderr.startswith(f"whichtorch: hook bad could not be applied: {reason}")
    assert len(ended.stderr.splitlines()) == 1


def test_hooks_may_wait_for_the_same_module(tmp_path: Path) -> None:
    """Each acts once an import, in their order, however often the module is looked for beforehand."""
    text = "def install(after_import):\n    after_import('colorsys', lambda module: print(NAME, module.__name__))"
    folder = copied(tmp_path, first=text.replace("NAME", "1"), second=text.replace("NAME", "2"))
    program = "import importlib.util as util; util.find_spec('colorsys'); import colorsys"
    assert run(program, hooks="first,second", folder=folder).stdout == "1 colorsys\n2 colorsys\n"


def test_a_hook_that_does_not_exist_ends_the_process() -> None:
    """A misspelt hook is as loud as one that fails, and other hooks before it do not matter."""
    ended = run("print('ran')", hooks="cpp_meta, cpp_mata")
    assert (ended.returncode, ended.stdout) == (125, "")
    assert ended.stderr == "whichtorch: hook cpp_mata could not be applied: there is no hook of that name\n"


def test_a_hook_does_not_take_a_name_from_the_script(tmp_path: Path) -> None:
    """A module of the user's that is called like a hook is still the user's."""
    (tmp_path / "cpp_meta.py").write_text("mine = True")
    ended = run("import cpp_meta; print(cpp_meta.mine)", tmp_path, hooks="cpp_meta")
    assert ended.stdout == "True\n"


def test_cpp_meta_removes_the_python_kernels(fake_torch: Path) -> None:
    """Only the library of aten's Meta kernels goes, and only once its module has run to its end."""
    assert run(SHOW_KERNELS, fake_torch).stdout == "kernels kernels True\n"
    ended = run(SHOW_KERNELS, fake_torch, hooks="cpp_meta")
    assert (ended.stdout, ended.stderr) == ("None kernels True\n", "")


def test_cpp_meta_leaves_the_module_as_it_was(fake_torch: Path) -> None:
    """The module's loader keeps its kind and its source, for all that look at them afterwards."""
    show = (
        "import inspect; from torch import _meta_registrations as m;"
        "l = m.__loader__;"
        "print(type(l).__name__, 'exec_module' in vars(l), 'finished' in inspect.getsource(m))"
    )
    assert run(show, fake_torch, hooks="cpp_meta").stdout == "SourceFileLoader False True\n"


def test_cpp_meta_does_not_import_torch(fake_torch: Path) -> None:
    """A script that never imports torch does not pay for it."""
    assert run("import sys; print('torch' in sys.modules)", fake_torch, hooks="cpp_meta").stdout == "False\n"


def test_cpp_meta_works_before_libraries_had_destroy(fake_torch: Path) -> None:
    """In releases without Library._destroy the kernels go as well."""
    package = fake_torch / "torch" / "__init__.py"
    package.write_text(package.read_text().replace("_destroy", "_other"))
    assert run(SHOW_KERNELS, fake_torch, hooks="cpp_meta").stdout == "None kernels True\n"


def test_cpp_meta_is_loud_where_it_finds_no_library(fake_torch: Path) -> None:
    """A torch that keeps its Python kernels elsewhere is not judged as if they were gone."""
    (fake_torch / "torch" / "_meta_registrations.py").write_text("")
    ended = run("import torch; print('ran')", fake_torch, hooks="cpp_meta")
    assert (ended.returncode, ended.stdout) == (125, "")
    assert "hook cpp_meta could not be applied: LookupError: torch._meta_registrations holds no" in ended.stderr


def test_cpp_meta_goes_on_where_there_is_nothing_to_remove(fake_torch: Path) -> None:
    """A torch without the module, and an import that fails, are what they are without the hook."""
    (fake_torch / "torch" / "_meta_registrations.py").unlink()
    (fake_torch / "torch" / "__init__.py").write_text("")
    assert run("import torch; print('ran')", fake_torch, hooks="cpp_meta").stdout == "ran\n"
    ended = run("import torch._meta_registrations", fake_torch, hooks="cpp_meta")
    assert ended.returncode == 1
    assert "No module named 'torch._meta_registrations'" in ended.stderr


def test_spawned_children_get_the_hooks_too(fake_torch: Path, tmp_path: Path) -> None:
    """A child of multiprocessing's spawn starts anew, and under the same config."""
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing\n"
        "def show():\n"
        "    from torch import _meta_registrations as module\n"
        "    print(module._meta_lib_dont_use_me_use_register_meta.m, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    show()\n"
        "    child = multiprocessing.get_context('spawn').Process(target=show)\n"
        "    child.start()\n"
        "    child.join()\n"
    )
    ended = run(script, fake_torch, hooks="cpp_meta", cwd=tmp_path)
    assert (ended.stdout, ended.stderr) == ("None\nNone\n", "")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_hooks_are_written_for_old_pythons(path: Path) -> None:
    """Python 3.8 can read every file of the start-up folder."""
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


needs_signals = pytest.mark.skipif(sys.platform != "linux", reason="the signal is one of Linux")
TELL_OWN = f"""
import os
def tell_own():
    os.kill(os.getpid(), {sitecustomize.STACKS_SIGNAL})
"""


def stacks_of(program: str, folder: Path) -> dict[str, str]:
    """Run a program with a folder for its stacks; return what is in its files, by name."""
    folder.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ |= {"PYTHONPATH": str(FOLDER), "WHICHTORCH_STACKS": str(folder)}
    subprocess.run([sys.executable, "-c", TELL_OWN + program], env=environ, timeout=PATIENCE, check=True)
    return {path.name: path.read_text() for path in folder.iterdir()}


@needs_signals
def test_a_signal_writes_the_stacks(tmp_path: Path) -> None:
    """A process that is asked writes all its threads into the file named by its number, and goes on."""
    program = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
tell_own()
open(os.environ["WHICHTORCH_STACKS"] + "/went_on", "w").write(str(os.getpid()))
"""
    stacks = stacks_of(program, tmp_path / "stacks")
    text = stacks.pop(stacks.pop("went_on") + ".faulthandler.txt")
    assert not stacks
    assert "in tell_own" in text
    assert text.count("(most recent call first)") == 2


@needs_signals
def test_each_fork_writes_into_a_file_of_its_own(tmp_path: Path) -> None:
    """A child, and a child's child, do not write into their parent's file, nor leave its descriptor open."""
    program = """
def child():
    tell_own()
    if len(os.listdir(os.environ["WHICHTORCH_STACKS"])) < 3:
        fork()
def fork():
    before = len(os.listdir("/proc/self/fd"))
    if (pid := os.fork()) == 0:
        assert len(os.listdir("/proc/self/fd")) == before
        child()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
fork()
"""
    stacks = stacks_of(program, tmp_path / "stacks")
    assert sorted(text.count("in child") for text in stacks.values()) == [0, 1, 2]


@needs_signals
def test_a_descriptor_of_the_script_is_not_closed(tmp_path: Path) -> None:
    """Where a script has put a file of its own at the descriptor's place, a fork leaves that open."""
    program = """
os.closerange(3, 20)
mine = [os.open(os.devnull, os.O_RDONLY) for _ in range(10)]
if (pid := os.fork()) == 0:
    [os.fstat(descriptor) for descriptor in mine]
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    assert len(stacks_of(program, tmp_path / "stacks")) == 2


def test_without_a_folder_for_stacks_nothing_changes(tmp_path: Path) -> None:
    """A folder that is not there keeps no script from running."""
    environ = os.environ | {"PYTHONPATH": str(FOLDER), "WHICHTORCH_STACKS": str(tmp_path / "nowhere")}
    ended = subprocess.run(
        [sys.executable, "-c", "print(1)"], env=environ, capture_output=True, timeout=PATIENCE, check=True
    )
    assert (ended.stdout, ended.stderr) == (b"1\n", b"")
