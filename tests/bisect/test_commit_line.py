"""A search along a line of commits over wheels: real git, histories that are drawn, runs that are made up."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.bisect.driving import CRASHED, FAILED, MadeUpBench
from tests.fakes import PASSED, FakeCache
from tests.repository import Repository
from whichtorch.bisect.axes.commit_line import LineSearch, _older_first
from whichtorch.bisect.axes.commit_wheels import Wheels, WheelTree
from whichtorch.bisect.axes.git import Checkout
from whichtorch.bisect.axes.relatives import relatives
from whichtorch.bisect.bisection import Bisection
from whichtorch.bisect.search_request import SearchRequest
from whichtorch.environments import matrix_file
from whichtorch.model import Build, Config, Environment, Request, Scenario
from whichtorch.process.supervision import Ending
from whichtorch.records import store
from whichtorch.reports.bisection_text import bisection_lines
from whichtorch.search.search_state import AnswerKind, SearchVerdict

FIX, BROKEN, NEEDS_NEW, NATIVE = "fix", "broken", "needs the new native code", "new native code"


@dataclass(frozen=True)
class Made:
    """A commit as it was drawn."""

    number: int
    parents: tuple[int, ...]
    has: frozenset[str]  # what is in its tree
    is_read: bool  # it changes a file that the script reads


@dataclass
class History:
    """A history that is drawn: a line with side branches that are merged, and two releases on branches of their own."""

    seed: int
    native_fixes: bool = False  # the new native code fixes it, too
    has_fix: bool = True
    has_native: bool = True  # else what comes with the newer wheel is other packages, and no native file changes
    wheels: set[str] = field(default_factory=set)  # that a search has tried
    commits: list[Made] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)

    def draw(self) -> None:
        rnd = random.Random(self.seed)
        tip = self.add(frozenset(), (), is_read=True)
        self.old = self.add(frozenset(), (tip,), is_read=False)
        steps = [""] * rnd.randint(5, 40) + [BROKEN] * rnd.randint(0, 2) + [NEEDS_NEW] * rnd.randint(0, 1)
        steps += [NATIVE] * self.has_native
        rnd.shuffle(steps)
        fixes = ["fix", "revert", "fix"][: rnd.choice((1, 1, 3))] if self.has_fix else []
        for place, step in zip(sorted(rnd.sample(range(len(steps)), len(fixes))), fixes, strict=True):
            steps.insert(place, step)
        if self.has_native and NEEDS_NEW in steps and steps.index(NEEDS_NEW) < steps.index(NATIVE):
            steps.remove(NEEDS_NEW)
        for step in steps:
            has = self.commits[tip].has
            made = has ^ {step} if step in {FIX, NATIVE, NEEDS_NEW} else has | {BROKEN} if step == BROKEN else has
            made -= {FIX} if step == "revert" else set()
            is_read = bool(step and step != NATIVE) or rnd.random() < 0.3
            if rnd.random() < 0.2:  # with a merge, of a branch that is older than the line's tip
                side = self.add(has, (tip,), is_read=rnd.random() < 0.5)
                side = self.add(made, (side,), is_read=is_read)
                side = self.add(made, (side,), is_read=False)
                tip = self.add(has, (tip,), is_read=False)
                tip = self.add(made, (tip, side), is_read=is_read)
            else:
                tip = self.add(made, (tip,), is_read=is_read)
            if step == BROKEN:
                for _ in range(rnd.randint(0, 2)):
                    tip = self.add(made, (tip,), is_read=True)
                tip = self.add(made - {BROKEN}, (tip,), is_read=True)
        self.new = self.add(self.commits[tip].has, (tip,), is_read=False)

    def add(self, has: frozenset[str], parents: tuple[int, ...], *, is_read: bool) -> int:
        """Append a commit, and return its number."""
        self.commits.append(Made(len(self.commits), parents, has, is_read))
        return len(self.commits) - 1

    def write(self, folder: Path) -> Checkout:
        """Make the repository."""
        folder.mkdir()
        stream = []
        for made in self.commits:
            head = f"commit refs/heads/b{made.number}\nmark :{made.number + 1}\ncommitter A <a@b> {made.number} +0000\n"
            title = f"Commit {made.number}"
            head += f"data {len(title)}\n{title}\n"
            head += "".join(
                f"{word} :{parent + 1}\n" for word, parent in zip(("from", "merge"), made.parents, strict=False)
            )
            read = made.number if made.is_read else next((p for p in self._line(made) if self.commits[p].is_read), 0)
            for name, text in (("core.py", read), ("unread.py", made.number), ("a.cpp", int(NATIVE in made.has))):
                head += f"M 100644 inline lib/{name}\ndata {len(str(text))}\n{text}\n"
            stream.append(head + "\n")
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        asked = ["git", "fast-import", "--quiet", f"--export-marks={folder}/marks"]
        subprocess.run(asked, cwd=folder, input="".join(stream).encode(), check=True)
        marks = dict(line.split() for line in (folder / "marks").read_text().splitlines())
        self.hashes = [marks[f":{made.number + 1}"] for made in self.commits]
        return Checkout.at(folder)

    def _line(self, made: Made) -> Iterator[int]:
        while made.parents:
            yield made.parents[0]
            made = self.commits[made.parents[0]]

    def passes(self, number: int, *, is_new: bool) -> bool | None:
        """Return how a commit ends over native code; None for another failure."""
        has = self.commits[number].has
        if BROKEN in has or (NEEDS_NEW in has and not is_new):
            return None
        return FIX in has or (self.native_fixes and is_new)

    @property
    def changes(self) -> set[str]:
        """The commits that really pass although a parent fails, or fail although a parent passes."""
        newer = NATIVE if self.has_native else NEEDS_NEW
        real = [self.passes(made.number, is_new=newer in made.has) for made in self.commits]
        return {
            self.hashes[made.number]
            for made in self.commits
            for parent in made.parents
            if None not in {real[made.number], real[parent]} and real[made.number] is not real[parent]
        }


class Laid(FakeCache):
    """Commits that are laid at once."""

    def environment(self, request: Request) -> Environment:
        return super().environment(request).model_copy(update={"id": f"id-{request.label}"})


def searched(history: History, folder: Path, releases: Bisection | None = None) -> Bisection:
    checkout = history.write(folder / "checkout")
    hashes = history.hashes

    def request_of(version: str) -> Request:
        return Request(torch=version, python="3.11", build=Build(name="pypi"), config=Config(name="default"))

    tagged = {"1.0": hashes[history.old], "2.0": hashes[history.new]}
    wheels = Wheels(checkout=checkout, package="lib", tagged=tagged, request_of=request_of)

    def behave(request: Request) -> Ending:
        history.wheels.add(request.torch)
        assert request.imported == ("lib.core",) or request.commit in {"", hashes[history.new]}
        number = hashes.index(request.commit or tagged[request.torch])
        passes = history.passes(number, is_new=request.torch == "2.0")
        return CRASHED if passes is None else PASSED if passes else FAILED

    scenario = Scenario(name="repro.py", path=folder / "repro.py", source_hash="1", in_suite=False)
    file = matrix_file.read_matrix_file(matrix_file.DEFAULT_FILE)
    request = SearchRequest(home=folder, file=file, scenario=scenario, variant={})
    with store.new_run(folder, ()) as run_store:
        bench = MadeUpBench(Laid(folder), run_store, behave)
        old, new = _older_first(checkout, hashes[history.new], hashes[history.old])
        search = LineSearch(request, bench, wheels, checkout.line(old, new), SearchVerdict.BAD)
        tree = SimpleNamespace(place=lambda path: path, own=frozenset({"lib/core.py", "lib/unread.py"}))
        search.__dict__ |= {"_tree": tree, "_noted": (("lib/core.py\t\t<module>",),) * 2}
        if releases:
            search.take_in(releases)
        return search.run()


@pytest.mark.parametrize("seed", range(12))
def test_never_a_wrong_commit(tmp_path: Path, seed: int) -> None:
    """Through merges, reverts, broken commits and native code, the commit is a real change, or a bracket holds one."""
    history = History(seed, native_fixes=seed % 4 == 3)
    history.draw()
    found = searched(history, tmp_path)
    check(history, found)


def check(history: History, found: Bisection) -> str:
    told = "; ".join(found.reasons)
    assert not re.search("[0-9a-f]{40}", "\n".join(bisection_lines(found, 80)))
    if found.answer is AnswerKind.BOUNDARY and found.boundaries[-1].culprit:
        assert found.boundaries[-1].culprit.commit in history.changes, told
        return "right"
    order = list(found.values)
    assert found.boundaries, told
    low, high = (order.index(end[:40]) for end in (found.boundaries[-1].from_, found.boundaries[-1].to))
    assert history.changes.intersection(order[low + 1 : high + 1]), told
    return "bracket"


@pytest.mark.parametrize("needs_new", [False, True])
def test_native_code_is_told_early(tmp_path: Path, needs_new: bool) -> None:
    """Where the wheel alone makes the difference, no commit is blamed, after a few runs."""
    history = History(3, native_fixes=True, has_fix=False)
    history.draw()
    for number, made in enumerate(history.commits[2:] if needs_new else (), 2):
        history.commits[number] = replace(made, has=made.has | {NATIVE, NEEDS_NEW})
    found = searched(history, tmp_path)
    assert found.answer is AnswerKind.INCONCLUSIVE
    assert found.reasons[0].startswith("native code decides, not Python")
    assert found.runs <= 6


@pytest.mark.parametrize("seed", range(8))
def test_one_wheel_tells_where_no_native_file_differs(tmp_path: Path, seed: int) -> None:
    """The newer wheel is installed only where the newer bound cannot be told over the older one."""
    history = History(seed, has_native=False)
    history.draw()
    check(history, searched(history, tmp_path))
    needs_both = NEEDS_NEW in history.commits[history.new].has
    assert history.wheels == ({"1.0", "2.0"} if needs_both else {"1.0"})


def test_merge_of_a_release_branch_brought_nothing_of_main(tmp_path: Path) -> None:
    """What main had before a release branch was merged back into it did not come with that merge."""
    history = History(0, has_native=False)
    root = history.add(frozenset(), (), is_read=True)
    fix = history.add(frozenset({FIX}), (root,), is_read=True)
    history.old = history.add(frozenset(), (root,), is_read=False)
    merge = history.add(frozenset({FIX}), (fix, history.old), is_read=False)
    history.new = history.add(frozenset({FIX}), (merge,), is_read=False)
    culprit = searched(history, tmp_path).boundaries[-1].culprit
    assert culprit
    assert (culprit.commit, culprit.merges) == (history.hashes[fix], ())


def test_merge_whose_commit_is_not_known_says_so(tmp_path: Path) -> None:
    """Between what fails and what passes inside it, nothing can be judged."""
    history = History(0, has_native=False)
    made = [(), (0,), (0,), (0,), (3,), (2, 4), (5,)]
    for parents, has in zip(made, [[], [], [], [BROKEN], [FIX], [FIX], [FIX]], strict=True):
        history.add(frozenset(has), parents, is_read=True)
    history.old, history.new = 1, 6
    found = searched(history, tmp_path)
    first, side, merge = (history.hashes[each][:10] for each in (0, 4, 5))
    assert (found.answer, found.boundaries[-1].to[:10]) == (AnswerKind.BOUNDARY, merge)
    judged = f"{first} over 1.0: fail, {side} over 1.0: pass"
    assert f"which commit of the merge {merge} it was is not known, only: {judged}" in found.reasons


def test_bracket_names_all_that_was_tried_in_it(tmp_path: Path) -> None:
    """The commit right before the first that passes is tried, though it changes nothing that the script reads."""
    history = History(0, has_native=False)
    root = history.add(frozenset(), (), is_read=True)
    history.old = history.add(frozenset(), (root,), is_read=False)
    broken = history.add(frozenset({BROKEN}), (root,), is_read=True)
    unread = history.add(frozenset({BROKEN}), (broken,), is_read=False)
    fix = history.add(frozenset({FIX}), (unread,), is_read=True)
    history.new = history.add(frozenset({FIX}), (fix,), is_read=False)
    found = searched(history, tmp_path)
    bracket = found.boundaries[-1]
    assert (found.answer, bracket.culprit) == (AnswerKind.INCONCLUSIVE, None)
    assert bracket.different_between == (history.hashes[broken], history.hashes[unread])


def test_each_part_is_tried_over_the_wheel_that_is_near(tmp_path: Path) -> None:
    """Where commits of both parts need the native code near to them, few are tried over the wheel that is far."""
    history = History(0)
    tip = history.old = history.add(frozenset(), (history.add(frozenset(), (), is_read=True),), is_read=False)
    for number in range(60):
        has = frozenset({BROKEN} if 10 < number < 35 else {NEEDS_NEW} if number > 10 else ())
        has |= frozenset({NATIVE} if number > 25 else ()) | frozenset({FIX} if number > 50 else ())
        tip = history.add(has, (tip,), is_read=True)
    history.new = history.add(history.commits[tip].has, (tip,), is_read=False)
    found = searched(history, tmp_path)
    assert check(history, found) == "right"
    assert found.runs <= 25


def test_search_of_the_releases_counts(tmp_path: Path) -> None:
    """Where the releases were searched first, the answer says between which, and what all of it has cost."""
    history = History(6)
    history.draw()
    (tmp_path / "alone").mkdir()
    alone = searched(history, tmp_path / "alone")
    found = searched(history, tmp_path, alone.model_copy(update={"seconds": 1000.0}))
    assert found.runs == 2 * alone.runs
    assert found.seconds >= 1000
    assert found.reasons[0].startswith("the releases were searched first: ")


def test_wheel_of_another_commit_than_its_tag(tmp_path: Path) -> None:
    """What a wheel has as some other commit has it follows the commit; what its build has generated stays."""
    repository, site = Repository.at(tmp_path / "checkout", with_python=False), tmp_path / "site"
    folder, info = repository.folder / "lib", site / "lib-1.0.dist-info"

    def commit(**texts: str) -> str:
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        repository.git("add", "-A")
        repository.git("commit", "--quiet", "--message=A commit")
        return repository.git("rev-parse", "HEAD")

    alike = {f"f{number}": "" for number in range(20)}
    tag = commit(__init__="1", core="1", stamp="unknown", **alike)
    later = commit(__init__="2")
    info.mkdir(parents=True)
    (site / "lib").mkdir()
    for name, text in {"__init__": "2", "core": "1", "stamp": "1.0", **alike}.items():
        (site / "lib" / f"{name}.py").write_text(text)
    (info / "RECORD").write_text("".join(f"lib/{path.name},,\n" for path in (site / "lib").iterdir()))
    tree = WheelTree.read(Checkout.at(repository.folder), tag, site, "lib")
    assert tree.generated == ("lib/stamp.py",)
    assert tree.files(tag)[0] == {"lib/__init__.py": "1"}
    assert tree.files(later)[0] == {"lib/__init__.py": "2"}
    assert tree.files(commit(__init__="3", core="2", stamp="no"))[0] == {"lib/__init__.py": "3", "lib/core.py": "2"}


def test_packages_are_found_where_a_commit_has_them(tmp_path: Path) -> None:
    """A package of a namespace and a module of one file are known, and followed to another folder."""
    repository, site = Repository.at(tmp_path / "checkout", with_python=False), tmp_path / "site"
    folder, info, names = repository.folder, site / "lib-1.0.dist-info", ("alone.py", "space/lib/__init__.py")

    def commit(text: str) -> str:
        for name in (*names, *(["space/lib/new.py"] if text else [])):
            (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "src" / name).write_text(text)
        repository.git("add", "-A")
        repository.git("commit", "--quiet", "--message=A commit")
        return repository.git("rev-parse", "HEAD")

    tag = commit("")
    shutil.copytree(folder / "src", site)
    info.mkdir()
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    tree = WheelTree.read(Checkout.at(folder), tag, site, "lib")
    repository.git("mv", "src", "python")
    repository.git("commit", "--quiet", "--message=Move it")
    assert tree.files(repository.git("rev-parse", "HEAD"))[0] == dict.fromkeys(names, "")
    repository.git("mv", "python", "src")
    assert tree.files(commit("2"))[0] == dict.fromkeys((*names, "space/lib/new.py"), "2")


def test_relatives_are_known_by_more_than_a_title(tmp_path: Path) -> None:
    """A revert names the commit, or what merged it; a copy has its date; others with its title are other changes."""
    repository = Repository.at(tmp_path / "checkout", with_python=False)
    checkout, days = Checkout.at(repository.folder), iter(range(10, 30))

    def commit(*message: str, day: int | None = None) -> str:
        words = [f"--message={line}" for line in message]
        repository.git("commit", "--quiet", "--allow-empty", f"--date=2026-01-{day or next(days)}T00:00:00", *words)
        return repository.git("rev-parse", "HEAD")

    def merge(commit: str, number: int, title: str) -> str:
        repository.git("merge", "--quiet", "--no-ff", commit, f"-mMerge pull request #{number} from a/b", f"-m{title}")
        return repository.git("rev-parse", "HEAD")

    first = commit("Update the core")
    repository.git("checkout", "--quiet", "-b", "side")
    fix, other = commit("Mend the sum of none", day=9), commit("Update the core")
    repository.git("checkout", "--quiet", "main")
    merged = merge("side", 1, "Sums of any length")
    undone = commit('Revert "Sums of any length"')
    assert not {*relatives(checkout, first), *relatives(checkout, other)}
    assert [*relatives(checkout, fix, [merged])] == [f"reverted in {undone[:10]}"]
    assert [*relatives(checkout, undone)] == [f"also landed in {merged[:10]}"]
    again = commit("Reland: Sums of any length (#9)", f"This reverts commit {undone}.")
    assert [*relatives(checkout, again)] == [f"also landed in {merged[:10]}", f"it reverts {undone[:10]}"]
    picked = commit("For the release: mend it", f"(cherry picked from commit {fix})")
    copy = commit("Mend the sum of none (#7)", day=9)
    assert [*relatives(checkout, fix)] == [f"also landed in {each[:10]}" for each in (picked, copy)]
    assert [*relatives(checkout, picked)] == [f"cherry-picked from {fix[:10]}"]
