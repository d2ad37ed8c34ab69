"""What the hook that measures notes of a script, in processes of their own; a package called torch stands in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from tests.patience import PATIENCE
from whichtorch.inside.startup import FOLDER

TORCH = {
    "__init__.py": "import time\nbegun = time.process_time()\nwhile time.process_time() < begun + 0.2: pass\n"
    "ballast = bytearray(b'x' * 30_000_000)\n",
    "_dynamo/__init__.py": "",
    "_dynamo/utils.py": "compilation_time_metrics = {}\n",
}
BURN = "import time\ndef burn(): \n    end = time.process_time() + 0.3\n    while time.process_time() < end: pass\n"
FORKED = "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a torch whose import takes 0.2 seconds and 30 MB."""
    for name, text in TORCH.items():
        path = tmp_path / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(folder: Path, script: str, every: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script as a measured one is run."""
    path = folder / "script.py"
    path.write_text(script)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WHICHTORCH_"))}
    environ["PYTHONPATH"] = os.pathsep.join(map(str, (FOLDER, folder)))
    environ["WHICHTORCH_HOOKS"] = "note_numbers"
    asked = {"file": str(folder / "notes"), "every": every, "compile": True}
    environ["WHICHTORCH_MEASURE"] = json.dumps(asked)
    command = [sys.executable, str(path)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)


def noted(folder: Path, script: str, every: str | None = None) -> dict[str, Any]:
    """Return what was noted of a script that ends well."""
    ended = run(folder, script, every)
    assert (ended.returncode, ended.stderr) == (0, "")
    (file,) = written(folder)
    notes = json.loads(file.read_text())
    file.unlink()
    return notes  # type: ignore[no-any-return]


def written(folder: Path) -> list[Path]:
    """Return the files of notes, one of each process that was measured."""
    return list(folder.glob("notes-*.json"))


def test_the_import_of_torch_is_noted_apart(folder: Path) -> None:
    """Its seconds and its memory are its own; the script's seconds begin after it."""
    notes = noted(folder, "import torch")
    assert notes["import"]["wall"] >= 0.2
    assert 30e6 < notes["import"]["memory"] < 60e6
    assert notes["cpu"] < 0.2


def test_what_is_before_the_import_does_not_count(folder: Path) -> None:
    """Nor does what a second import of torch takes."""
    notes = noted(folder, BURN + "burn()\nimport torch\nfirst = torch\nimport torch")
    assert notes["cpu"] < 0.3
    assert notes["import"]["wall"] >= 0.2


def test_the_exit_handlers_of_torch_do_not_count(folder: Path) -> None:
    """What its import has registered is none of the script's work."""
    (folder / "torch" / "__init__.py").write_text(BURN + "import atexit\natexit.register(burn)\n")
    assert noted(folder, "import torch")["cpu"] < 0.3


def test_a_script_without_torch_is_measured_whole(folder: Path) -> None:
    """There is no import to note, and its time begins with the process."""
    notes = noted(folder, BURN + "burn()")
    assert notes["import"] is None
    assert notes["cpu"] >= 0.3
    assert notes["wall"] >= 0.3


@pytest.mark.thorough
@pytest.mark.parametrize("who", ["the script", "an ended child", "an exit handler"])
def test_cpu_time_after_the_import_counts(folder: Path, who: str) -> None:
    """That of the script, of its ended children, and of what it leaves to do at its end."""
    script = {
        "the script": "burn()",
        "an ended child": FORKED + "if not child: burn(); os._exit(0)",
        "an exit handler": "import atexit\natexit.register(burn)",
    }[who]
    assert noted(folder, BURN + "import torch\n" + script)["cpu"] >= 0.3


def test_a_forked_child_writes_nothing(folder: Path) -> None:
    """It ends as Python does, before its parent, whose notes are the ones that count."""
    script = "import glob\nimport torch\n" + FORKED + "else: raise SystemExit\nassert not glob.glob('{}/notes*')"
    notes = noted(folder, script.format(folder))
    assert notes["import"] is not None


@pytest.mark.parametrize("start", [FORKED + "if not child: os._exit(0)", "import subprocess\nsubprocess.run(['true'])"])
def test_children_of_the_script_are_noted(folder: Path, start: str) -> None:
    """Children that the import of torch starts are not the script's."""
    (folder / "torch" / "__init__.py").write_text("import subprocess\nsubprocess.run(['true'])\n")
    assert noted(folder, "import torch\n" + start)["has_children"]
    assert not noted(folder, "import torch")["has_children"]


def test_the_most_memory_is_noted(folder: Path) -> None:
    """Also if it was given back."""
    script = "import torch\nlarge = bytearray(b'x' * 80_000_000)\ndel large"
    assert 80e6 < noted(folder, script)["peak"] < 300e6


def test_pages_of_files_do_not_count(folder: Path) -> None:
    """How many of a library's pages are resident says how its file came into memory, not what the script needs."""
    library = Path(find_uv_bin())  # a large file on a disk: those of the tests may be in memory
    before = noted(folder, "import torch\nprint('done')", every="")
    mapped = f"\nimport mmap\nfile = open({str(library)!r}, 'rb')\n"
    touched = "pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\npages[::4096]\n"
    (folder / "torch" / "__init__.py").write_text(TORCH["__init__.py"] + mapped + touched)
    after = noted(folder, "import torch\nprint('done')", every="")
    most = library.stat().st_size / 2
    assert after["import"]["memory"] - before["import"]["memory"] < most
    assert max(after["steps"]) - max(before["steps"]) < most
    assert after["peak"] - before["peak"] < most


@pytest.mark.thorough
def test_memory_is_noted_at_each_line(folder: Path) -> None:
    """At those with a pattern, whatever pieces they are printed in, to either stream."""
    script = "import sys, torch\nkept = []\nfor step in range(10):\n    kept.append(bytearray(b'x' * 1_000_000))\n"
    printed = "    print('step', step, end=' ', flush=True); print('of 10')\n    print('other\\nlines')\n"
    steps = noted(folder, script + printed, every=r"^step \d of")["steps"]
    assert len(steps) == 10
    assert steps[-1] - steps[0] == pytest.approx(9e6, rel=0.2)
    assert len(noted(folder, script + printed, every="")["steps"]) == 30
    assert noted(folder, script + printed)["steps"] == []
    ended = run(folder, "import sys\nfor step in range(3): print(step, file=sys.stderr)", every="")
    assert ended.stderr == "0\n1\n2\n"
    (file,) = written(folder)
    assert len(json.loads(file.read_text())["steps"]) == 3


@pytest.mark.thorough
def test_phases_of_the_compiler_are_noted(folder: Path) -> None:
    """The sums of torch's own clocks; none where no compiler was used."""
    timed = "import torch._dynamo.utils as utils\nutils.compilation_time_metrics['_compile.inner'] = [0.5, 0.25]"
    assert noted(folder, timed)["compile"] == {"_compile.inner": 0.75}
    assert noted(folder, "import torch._dynamo.utils")["compile"] is None
    assert noted(folder, "import torch")["compile"] is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "function", "counts"),
    [("convert_frame", "compile_inner", True), ("convert_frame", "run", False), ("utils", "compile_inner", False)],
)
def test_garbage_collections_within_a_compiler_are_noted(
    folder: Path, module: str, function: str, counts: bool
) -> None:
    """Those at other times, and in what was compiled, take nothing from the compile."""
    source = f"import gc\ndef {function}(): \n    kept = [[] for _ in range(300_000)]\n    gc.collect()\n"
    (folder / "torch" / "_dynamo" / f"{module}.py").write_text(source)
    script = f"import gc\ngc.disable()\nimport torch._dynamo.{module} as called\ncalled.{function}()\ngc.collect()"
    assert (noted(folder, script)["gc"] > 0.001) == counts


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["raise SystemExit(3)", "raise ValueError", "import sys; sys.exit('no')"])
def test_a_script_that_fails_is_measured_too(folder: Path, end: str) -> None:
    """It ends as it would have, and whoever reads the notes knows how."""
    ended = run(folder, f"import torch\n{end}")
    assert ended.returncode in {1, 3}
    assert written(folder)


def test_a_process_that_ends_at_once_has_no_notes(folder: Path) -> None:
    """No exit handler runs then."""
    assert run(folder, "import os, torch\nos._exit(0)").returncode == 0
    assert not written(folder)


def test_an_error_of_the_hook_is_written_down(folder: Path) -> None:
    """And the script does not notice."""
    script = "import torch._dynamo.utils as utils\nutils.compilation_time_metrics['x'] = ['no number']"
    assert noted(folder, script) == {"problem": "TypeError: unsupported operand type(s) for +: 'int' and 'str'"}


def test_the_script_does_not_see_that_it_is_measured(folder: Path) -> None:
    """Nor do its children: the variable is gone, and what it prints is what it printed."""
    script = "import os, torch\nprint('WHICHTORCH_MEASURE' in os.environ, end='')"
    ended = run(folder, script, every="")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("False", "", 0)
