"""Two releases of a small package, as texts or as environments that a Python runs in."""

import sys
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from whichtorch.fix.cure_search import Trial, TrialEffect
from whichtorch.fix.tree_change import TreeChange
from whichtorch.fix.units import ChangedFile, FilePair, Proposal, Unit

PYVENV = "home = {}\ninclude-system-site-packages = false\n"


def changed_file(bad: str | None, good: str | None) -> ChangedFile:
    return ChangedFile(FilePair(path="torch/m.py", bad=bad, good=good))


def tree_change(bad: Mapping[str, str], good: Mapping[str, str]) -> TreeChange:
    paths = bad.keys() | good.keys()
    pairs = {
        path: FilePair(path=path, bad=bad.get(path), good=good.get(path))
        for path in sorted(paths)
        if bad.get(path) != good.get(path)
    }
    return TreeChange(pairs, paths)


def independent(names: Iterable[str]) -> TreeChange:
    """Return a change of functions that know nothing of each other."""
    bad = "".join(f"def {name}():\n    return 0\n" for name in names)
    return tree_change({"torch/m.py": bad}, {"torch/m.py": bad.replace("return 0", "return 1")})


def effect(names: AbstractSet[str], cure: AbstractSet[str], poison: AbstractSet[str] = frozenset()) -> Trial:
    """Return what a trial of some units shows where others cure or break the script."""
    if names & poison:
        return Trial(effect=TrialEffect.UNRESOLVED, exception="ValueError: other")
    return Trial(effect=TrialEffect.CURED if cure <= names else TrialEffect.SAME)


def unit(change: TreeChange, path: str, name: str) -> Unit:
    found = change.named(path, name)
    assert found is not None, f"{path} has no unit {name}"
    return found


def proposal(change: TreeChange, *names: str) -> Proposal:
    """Return a proposal of units of torch/m.py."""
    return Proposal(units=frozenset(unit(change, "torch/m.py", name) for name in names))


def environment_folder(folder: Path, files: Mapping[str, str]) -> Path:
    """Make an environment whose torch is `files`, and return its interpreter."""
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / minor / "site-packages"
    records = ["torch-1.0.dist-info/RECORD,,"]
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
        records.append(f"{path},,")
    (site / "torch-1.0.dist-info").mkdir(parents=True)
    (site / "torch-1.0.dist-info" / "RECORD").write_text("\n".join(records) + "\n", encoding="utf-8")
    base = Path(sys.base_prefix) / "bin"
    (folder / "pyvenv.cfg").write_text(PYVENV.format(base), encoding="utf-8")
    interpreter = folder / "bin" / "python"
    interpreter.parent.mkdir()
    interpreter.symlink_to(base / minor)
    return interpreter
