"""The page of a run, read as a browser would; tests/browser look at it in one."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.reports import pages
from tests.reports.pages import attempt, cell, environment, made, stored
from whichtorch.model import Cell, Diagnosis, Outcome, Scenario
from whichtorch.reports.page.details import Excerpt, Rank, fitted
from whichtorch.reports.page.html import FIXED, PER_CELL

VOID = {"meta", "link", "input", "img", "br", "hr"}


class Page(HTMLParser):
    """A page taken apart: its rows of cells, texts by element, links, data and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[tuple[str, str]]] = []  # class and text of each cell
        self.names: list[str] = []
        self.titles: list[str] = []
        self.heads: list[str] = []
        self.links: list[str] = []
        self.texts: dict[str, str] = {}  # by tag
        self.data: dict[str, str] = {}  # of JSON, by id
        self.scripts: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self._script: str | None = None
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.elements.append((tag, given))
        if tag == "a":
            self.links.append(given["href"])
        if tag == "script":
            self._script = given.get("id", "")
            if not self._script:
                self.scripts.append("")
        if "tbody" in self.open and self._in_grid:
            if tag == "tr":
                self.rows.append([])
            if tag == "td":
                self.rows[-1].append((given.get("class", ""), ""))
            if tag == "th" and given.get("scope") == "row":
                self.titles.append(given.get("title", ""))
                self.names.append("")
        if tag == "table":
            self._in_grid = given.get("id") == "grid"
        if tag not in VOID:
            self.open.append(tag)

    _in_grid = False

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attributes}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script:
            self.data[self._script] = self.data.get(self._script, "") + data
        elif self._script == "":
            self.scripts[-1] += data
        elif self.open:
            self.texts[self.open[-1]] = self.texts.get(self.open[-1], "") + data
            if "td" in self.open and self._in_grid and self.rows and self.rows[-1]:
                name, text = self.rows[-1][-1]
                self.rows[-1][-1] = (name, text + data)
            if "thead" in self.open and self._in_grid and data.strip():
                self.heads.append(data)
            if self.open[-1] == "span" and "tbody" in self.open and self._in_grid and "th" in self.open and self.names:
                self.names[-1] += data

    @property
    def index(self) -> Any:
        return json.loads(self.data["index"])

    @property
    def details(self) -> list[Any]:
        """What is known of the cells of each row; the shared part is in `shared`."""
        return [json.loads(line) for line in self.data["details"].split("\n")][1:]

    @property
    def shared(self) -> Any:
        return json.loads(self.data["details"].split("\n")[0])


HERE = environment("2.11.0")


def text_of(folder: Path, *cells: Cell, scenarios: Sequence[Scenario] = ()) -> str:
    """Return the page of a run in one environment."""
    return made(stored([HERE], cells, folder, scenarios))


@pytest.fixture(scope="module")
def real() -> str:
    """Return the page of a real run, with all that can be on it."""
    run = pages.real()
    return made(run, pages.compared(run), pages.nights(run.result.run), [pages.bisection()])


def test_grid_of_a_real_run(real: str) -> None:
    """Scenarios by family down, versions across; each cell has its outcome as a word, a class, and its marks."""
    found = Page(real)
    cells = [row for row in found.rows if row]
    assert len(cells) == 29
    assert {len(row) for row in cells} == {2}
    assert found.heads == ["test", "2.11.0", "2.15.0"]
    assert [text for _, text in cells[0]] == ["FAIL1", "pass"]
    assert [name.split() for name, _ in cells[0]] == [["F", "g"], ["p", "g", "t"]]
    assert [text for _, text in cells[2]] == ["FAIL2", "FAIL~2"]


def test_boundary_is_drawn_and_told(real: str) -> None:
    """Where a row turns from red to passing there is a line, and its title says so in words."""
    assert Page(real).titles[:3] == [*["fails up to 2.11.0, passes from 2.15.0 on"] * 2, ""]
    assert "2.15.0 fixes 2" in re.sub(r"\s+", " ", real)


def test_versions_are_compared_within_a_build_and_config(tmp_path: Path) -> None:
    """A config that passes everywhere draws no line; what says nothing of torch is passed over."""
    versions = ("2.9.0", "2.10.0", "2.11.0")
    plain, single = ([environment(torch, config) for torch in versions] for config in ("default", "single-thread"))
    outcomes = (Outcome.HANG, Outcome.UNBUILDABLE, Outcome.PASS)
    cells = [cell(where, outcome) for where, outcome in zip(plain, outcomes, strict=True)]
    cells += [cell(where, Outcome.PASS) for where in single]
    found = Page(made(stored([*plain, *single], cells, tmp_path)))
    assert [name.split() for name, _ in found.rows[1]] == [["H", "g"], ["p"], ["u", "g"], ["p"], ["p", "g", "t"], ["p"]]
    assert found.titles == ["hangs up to 2.9.0, passes from 2.11.0 on (cpu, 3.11, default)"]
    assert found.heads == ["test", "2.9.0", "2.10.0", "2.11.0", *["default", "single-thread"] * 3]


def test_known_issues_are_footnotes(real: str) -> None:
    """A cell that is red as expected has a number, and below the grid stands why, with links of the web only."""
    found = Page(real)
    assert "libgomp's pool of threads does not survive a fork" in found.texts["em"]
    assert "https://github.com/pytorch/pytorch/issues/17199" in found.links
    assert all(link.startswith(("https://", "#")) for link in found.links)


def test_unexpected_flaky_and_changed_are_marked(tmp_path: Path) -> None:
    """`!` and a class for what nobody expects, k/n for what comes and goes, a class for what changed."""
    attempts = tuple(attempt(outcome) for outcome in (Outcome.HANG, Outcome.PASS, Outcome.PASS))
    run = stored([HERE], [cell(HERE, Outcome.HANG, expected=False, attempts=attempts)], tmp_path)
    comparison = pages.compared(run)
    found = Page(made(run, comparison))
    assert found.rows[1] == [("H g x c", "HANG!1/3")]
    assert found.index["rows"][0]["flags"] == "7"
    assert found.index["rows"][0]["flaky"] == {"0": "1 of 3"}


def test_what_changed_what_hangs_what_to_do(real: str) -> None:
    """The story on top names the regression, where it hangs, and the commands that help."""
    text = re.sub(r"<[^>]+>|\s+", " ", real.partition("All cells")[0])
    text = re.sub(r"\s+", " ", text.partition("</style>")[2] or text).replace("&#39;", "'")
    assert "1 regression: passed, and does not any more" in text
    assert "(pass → hang)" in text
    assert "boxed kernel, Python-registered Meta kernel of aten::mm, waiting for the GIL" in text
    name = "'meta_mm/worker_thread[op=matmul,guard=none,gil=held,device=meta]'"
    assert f"nox -s matrix -- {name} --torch 2.11.0 --build pypi --fresh" in text
    assert f"nox -s bisect -- {name} --build pypi --axis date --torch 2.11.0 --since 2026-10-31" in text
    assert f"nox -s explain -- {name}" in text
    assert "numpy 2.4.5 -> 2.4.6" in text.replace("&gt;", ">")


def test_without_an_earlier_run() -> None:
    """That there is nothing to compare with is said, not left out."""
    assert "There is no earlier run to compare with." in made(pages.real())


def test_an_incomplete_run_says_so(tmp_path: Path) -> None:
    """Missing cells and environments that could not be had stand on top."""
    where = environment("2.11.0", outcome=Outcome.UNBUILDABLE, reason="no wheel for this platform")
    run = stored([where], [cell(where, Outcome.UNBUILDABLE, attempts=())], tmp_path)
    stopped = run.result.run.model_copy(update={"planned": 5, "interrupted": True})
    object.__setattr__(run, "result", run.result.model_copy(update={"run": stopped}))
    text = made(run)
    assert "it was interrupted: 4 of 5 planned cells are missing" in text
    assert "<strong>unbuildable</strong>  <code>torch-2.11.0-cpu</code>: no wheel for this platform" in text


def test_a_run_without_cells(tmp_path: Path) -> None:
    """A run that was stopped before its first cell has a page, too."""
    assert Page(made(stored([], [], tmp_path))).rows == []


def test_details_of_a_hang(real: str) -> None:
    """An opened hang has its stage, who waits for whom with the evidence, and the stuck thread before the others."""
    found = Page(real)
    at = next(place for place, row in enumerate(found.index["rows"]) if "op=matmul,guard=none" in row["name"])
    facts = found.details[at]["cells"]["0"]
    assert facts["hang"]["kind"] == "GIL cycle"
    assert facts["hang"]["closed"]
    assert facts["hang"]["place"].endswith("waiting for the GIL")
    assert [re.sub(r"\d+", "N", words) for words, _ in facts["hang"]["cycle"]] == [
        "thread N in PythonKernelHolder waits for the GIL",
        "thread N holds the GIL and waits in std::thread::join for it",
    ]
    titles = [title for title, _, _ in facts["texts"]]
    assert titles[0] == "stuck thread"
    assert re.fullmatch(r"\d+ other threads?", titles[-1])
    assert "take_gil (libpython3.11.so.1.0)" in facts["texts"][0][1]
    assert facts["conditions"][0][:2] == [True, "aten::mm under aten::matmul in another thread"]
    assert facts["change"] == {"kind": "regression", "was": "pass"}


def test_the_nearest_passing_environment(real: str) -> None:
    """A red cell names the passing environment that differs least, and in what."""
    found = Page(real)
    assert found.details[0]["cells"]["0"]["near"] == 1
    pair = found.shared["pairs"]["0.1"]
    assert pair["axes"] == [["torch", "2.11.0", "2.15.0"]]
    assert ["nvidia-cublas", "13.1.0.3"] in [row[:2] for row in pair["packages"]]


def test_outputs_that_are_gone_are_told(tmp_path: Path) -> None:
    """Files that were pruned, or that lie where a run has no business to look, are not on the page."""
    files = {"stderr": "runs/r/attempts/1/stderr.txt", "stderr_bytes": 1234, "stacks": "runs/r/attempts/1/stacks"}
    gone = cell(HERE, Outcome.HANG, attempts=(attempt(Outcome.HANG, **files),))
    texts = Page(text_of(tmp_path, gone)).details[0]["cells"]["0"]["texts"]
    assert texts == [
        ["stacks", "runs/r/attempts/1/stacks is not there any more", 0],
        ["stderr", "(1,234 bytes were written; runs/r/attempts/1/stderr.txt is not there any more)", 0],
    ]


def test_nothing_hostile_comes_through(tmp_path: Path) -> None:
    """Texts that try to break out stay text: one script of our own, no handler, no odd link, no raw control."""
    text = made(pages.hostile(tmp_path))
    found = Page(text)
    assert len(found.scripts) == 1
    digest = base64.b64encode(hashlib.sha256(found.scripts[0].encode()).digest()).decode()
    policy = next(given["content"] for tag, given in found.elements if given.get("http-equiv"))
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not [tag for tag, _ in found.elements if tag in {"img", "iframe", "object", "link", "base", "form"}]
    assert not [name for _, given in found.elements for name in given if name.startswith("on")]
    assert all(link.startswith(("https://", "#")) and " " not in link for link in found.links)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]", text)
    assert "49" not in found.texts["h3"]
    shown = found.details[0]["cells"]["0"]
    stderr = next(body for title, body, _ in shown["texts"] if title == "stderr")
    assert stderr.startswith("</script><script>document.title = 'broken'</script>")
    assert "\ufffd\ufffd\ufffd(" in stderr
    assert "red  \\x00\\x08\\x7f \\u202eright-to-left\\u202c \\u2028 {{ 7 * 7 }} <!-- details -->" in stderr
    stdout = next(body for title, body, _ in shown["texts"] if title == "stdout")
    assert "characters cut" in stdout
    assert "bytes cut" in stdout
    assert len(stdout) < 10_000
    assert "root:" not in found.data["details"]


def test_commands_are_quoted(tmp_path: Path) -> None:
    """A name with a quote or a space is one word of the command that is copied."""
    text = text_of(tmp_path, cell(HERE, Outcome.FAIL, "fam/it's; rm -rf *", expected=False))
    assert Page(text).details[0]["quoted"] == "'fam/it'\"'\"'s; rm -rf *'"
    assert "quoted" not in Page(text_of(tmp_path, cell(HERE, Outcome.FAIL, "a[b=1]"))).details[0]
    found = Page(text_of(tmp_path, cell(HERE, Outcome.FAIL, "my repro.py")))
    assert found.shared["environments"][0]["commands"]["script"] == (
        "nox -s matrix -- THE_CELL_HERE --torch 2.11.0 --build cpu --fresh"
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rows", "columns", "red", "output"),
    [
        (200, 50, 0.1, 20_000),
        (100, 20, 1.0, 50_000),
        (1, 400, 1.0, 3_000),
        (2_000, 1, 0.5, 9_000),
        (3, 2, 1.0, 2_000_000),
    ],
)
def test_size_is_bounded(tmp_path: Path, rows: int, columns: int, red: float, output: int) -> None:
    """1 MB and 1 kB a cell is never passed, whatever there is to tell, and no cell that matters goes without."""
    run = pages.huge(tmp_path, rows, columns, red, output)
    text = made(run, pages.compared(run))
    assert len(text.encode()) <= FIXED + PER_CELL * rows * columns
    found = Page(text)
    for row, facts in zip(found.index["rows"], found.details, strict=True):
        for place, letter in enumerate(row["letters"]):
            shown = facts["cells"][str(place)].get("texts", [])
            assert bool(shown) == (letter in "FHCO")
            assert all(len(body) == (output // 51) * 51 or "bytes cut" in body for _, body, _ in shown)


def test_names_alone_fill_a_page(tmp_path: Path) -> None:
    """Long names in one environment leave little room for the rest, and the bound holds."""
    name, named = "name-" * 30, partial(cell, HERE, Outcome.FAIL)
    text = text_of(tmp_path, *(named(f"family/{row}<{name}", signature=f"{row} " * 60) for row in range(3_000)))
    assert len(text.encode()) <= FIXED + PER_CELL * 3_000
    assert len(Page(text).details) == 3_000


def test_a_pass_costs_little(tmp_path: Path) -> None:
    """Ten thousand passes are a page of some 300 bytes each."""
    environments = [environment(f"2.{place}.0") for place in range(50)]
    cells = [cell(where, Outcome.PASS, f"family/case_{row}") for row in range(200) for where in environments]
    assert len(made(stored(environments, cells, tmp_path)).encode()) < 3_000_000


def test_room_is_shared_fairly() -> None:
    """Nobody gets more than is wanted, and what is left over goes to those after."""
    texts = {(0, row): [Excerpt(title="stderr", head=b"x" * size)] for row, size in enumerate((600, 9_000, 9_000))}
    shown = fitted(texts, dict.fromkeys(texts, Rank.RED), 7_000)
    sizes = [len(body) for ((_, body, _),) in shown.values()]
    assert sizes[0] == 600
    assert 2_900 < sizes[1] <= sizes[2] < 3_300
    assert fitted(texts, dict.fromkeys(texts, Rank.RED), -3) == {}


def test_pictures_are_well_formed(real: str) -> None:
    """Each picture is XML with a title, and all that is drawn lies in its frame."""
    drawn = re.findall(r"<svg .*?</svg>", real, re.DOTALL)
    assert len(drawn) == 3
    for text in drawn:
        svg = ET.fromstring(text)  # noqa: S314  our own
        *_, width, height = (float(number) for number in svg.attrib["viewBox"].split())
        assert svg.find("title") is not None
        for element in svg.iter():
            for name in ("x", "x1", "x2", "cx"):
                assert -1 <= float(element.attrib.get(name, 0)) <= width + 1
            for name in ("y", "y1", "y2", "cy"):
                assert -1 <= float(element.attrib.get(name, 0)) <= height + 1


def test_the_line_of_a_bisection() -> None:
    """Probes are numbered as they were made, and the bracket narrows to the boundary."""
    from whichtorch.reports.page.pictures import version_line

    line = version_line(pages.bisection())
    numbered = [(step["number"], step["value"]) for step in line["steps"]]
    assert numbered[:3] == [(1, "1.13.0"), (2, "2.15.0"), (3, "2.5.0")]
    brackets = [step["right"] - step["left"] for step in line["steps"] if step["left"] is not None]
    assert len(brackets) == 6
    assert brackets == sorted(brackets, reverse=True)
    assert line["boundaries"][0][2:] == ("2.11.1", "2.12.0")


def test_names_that_look_alike_stay_apart(tmp_path: Path) -> None:
    """Two names that differ only in what cannot be seen, or beyond what is shown, are two rows."""
    names = ["family/a" + "x" * 300, "family/a" + "x" * 301]
    found = Page(text_of(tmp_path, *(cell(HERE, Outcome.PASS, name) for name in names)))
    assert len({row["name"] for row in found.index["rows"]}) == 2


def test_known_issue_of_a_script_that_was_renamed(tmp_path: Path) -> None:
    """The header is found by what the script said, else by its name."""
    scenario = Scenario(name="family/old", path=Path("x.py"), source_hash="abc", summary="what it does")
    known = cell(HERE, Outcome.FAIL, "family/new", source_hash="abc", known="as ever")
    assert "what it does: <em>as ever</em>" in text_of(tmp_path, known, scenarios=[scenario])


def test_machines_that_disagree_are_told(tmp_path: Path) -> None:
    """A merged cell says which run saw what."""
    found = text_of(tmp_path, cell(HERE, Outcome.HANG, conflict="pass in one, hang in two"))
    assert "The runs that were merged disagree: pass in one, hang in two" in found


def test_an_opened_hang_has_its_whole_diagnosis(tmp_path: Path) -> None:
    """Eight ranks that disagree take a long sentence: the grid may cut it, the opened cell does not."""
    summary = "; ".join(f"rank {rank} waits in torch.distributed.all_reduce (train.py:{rank})" for rank in range(20))
    hung = attempt(Outcome.HANG, diagnosis=Diagnosis(kind="ranks", summary=summary))
    whole = text_of(tmp_path, cell(HERE, Outcome.HANG, signature=summary, attempts=(hung,)))
    found = Page(whole).details[0]["cells"]["0"]
    assert found["hang"]["summary"] == summary
