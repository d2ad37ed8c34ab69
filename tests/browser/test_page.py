"""The page of a run in a browser, as people use it."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.records.compare.synthetic_nights import measurement
from tests.reports import pages
from whichtorch.model import Effect, Outcome

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

HUNG = "meta_mm/worker_thread[op=matmul,guard=none,gil=held,device=meta]"
RERUN = f"nox -s matrix -- '{HUNG}' --torch 2.15.0 --build pypi --fresh"


def shown_rows(page: Page) -> list[str]:
    names = page.locator("#grid tbody tr:not(.family):not([hidden]) > th .name").all_text_contents()
    return [str(name) for name in names]


def wait_for_view(page: Page, view: str) -> None:
    """Wait until the address says what is seen, which it does a moment later."""
    page.wait_for_function("(view) => decodeURIComponent(location.hash.slice(1)) === view", arg=view)


def test_hangs_are_found_opened_and_rerun(real: Path, open_page: Open) -> None:
    """From a red number to the command that runs it again: filter, open, copy."""
    page = open_page(real)
    page.locator(".chip[value=hang]").click()
    assert len(shown_rows(page)) == 8
    expect(page.locator("#shown")).to_have_text("8 of 29 tests, 16 of 58 cells")
    page.locator("tr", has_text="op=matmul,guard=none").locator("td").nth(1).click()
    panel = page.locator("#cell")
    expect(panel.locator("h2")).to_have_text(HUNG)
    expect(panel.locator(".stage")).to_have_text(
        "boxed kernel, Python-registered Meta kernel of aten::mm, waiting for the GIL"
    )
    assert panel.locator(".cycle li").count() == 2
    expect(panel.locator("pre").first).to_contain_text("take_gil")
    assert panel.locator("details:has(pre)").first.get_attribute("open") is None
    panel.get_by_role("button", name="copy the command: run again").click()
    expect(panel.locator(".copy").first).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == RERUN


def test_the_view_is_in_the_address(real: Path, open_page: Open) -> None:
    """Whoever gets the address sees the same: filters, order, scheme, and the opened cell."""
    page = open_page(real)
    page.locator(".chip[value=hang]").click()
    page.locator("#text").fill("guard")
    page.locator("#sort").select_option("name")
    page.get_by_role("button", name="light / dark").click()
    page.locator("tr", has_text="op=matmul,guard=none").locator("td").nth(1).click()
    wait_for_view(page, f"outcome=hang&text=guard&sort=name&theme=dark&cell={HUNG}@torch-2.15.0-pypi")
    before = shown_rows(page)
    again = open_page(real, "#" + page.url.partition("#")[2])
    assert shown_rows(again) == before
    assert before == sorted(before)
    expect(again.locator("#cell h2")).to_have_text(HUNG)
    expect(again.locator("#text")).to_have_value("guard")
    assert again.evaluate("document.documentElement.dataset.theme") == "dark"
    again.reload()
    expect(again.locator("#cell h2")).to_have_text(HUNG)
    again.keyboard.press("Escape")
    again.get_by_role("button", name="clear filters").click()
    wait_for_view(again, "sort=name&theme=dark")


def test_keyboard_only(real: Path, open_page: Open) -> None:
    """Everything can be done without a pointer."""
    page = open_page(real)
    press = page.keyboard.press
    press("/")
    expect(page.locator("#text")).to_be_focused()
    page.keyboard.type("fork_after")
    assert shown_rows(page) == ["fork_after_openmp[threads=1]", "fork_after_openmp[threads=2]"]
    press("Tab")
    press("g")
    focused = page.locator("#grid td:focus")
    expect(focused).to_have_attribute(
        "aria-label", "pass, changed, threads/fork_after_openmp[threads=1], torch-2.11.0-pypi"
    )
    press("ArrowDown")
    press("ArrowRight")
    expect(focused).to_contain_text("HANG")
    press("Enter")
    expect(page.locator("#cell h2")).to_be_focused()
    expect(page.locator("#cell h2")).to_have_text("threads/fork_after_openmp[threads=2]")
    press("Tab")
    expect(page.locator("#close")).to_be_focused()
    press("Escape")
    expect(page.locator("#cell")).to_be_hidden()
    expect(focused).to_contain_text("HANG")
    press("Home")
    press("n")
    press("p")
    expect(focused).to_contain_text("HANG")
    press("?")
    expect(page.locator("#keys")).to_be_visible()
    press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    assert page.locator("#grid td[tabindex='0']").count() == 1


def test_filters_by_version_and_tag(real: Path, open_page: Open) -> None:
    """A version leaves its columns, a tag its rows; both together what has both."""
    page = open_page(real)
    page.locator("summary", has_text="torch").first.click()
    page.get_by_role("checkbox", name="2.15.0").check()
    assert page.locator("#grid .versions th:visible").all_text_contents() == ["test", "2.15.0"]
    assert page.locator("#grid td:visible").count() == 29
    page.keyboard.press("Escape")
    page.locator("summary", has_text="tag").first.click()
    page.get_by_role("checkbox", name="fork").check()
    assert page.locator("#grid td:visible").count() == 2
    wait_for_view(page, "tag=fork&torch=2.15.0")


def test_links_of_the_story_open_cells(real: Path, open_page: Open) -> None:
    """What changed and what hangs lead to the cell, also where a filter hides it."""
    page = open_page(real, "#outcome=pass&text=linear")
    page.locator(".group.regression a").first.click()
    expect(page.locator("#cell h2")).to_have_text(HUNG)
    expect(page.locator("#cell")).to_contain_text("regression, was pass")
    page.locator("#close").click()
    assert len(shown_rows(page)) == 29


def test_sorted_by_what_is_worst(real: Path, open_page: Open) -> None:
    """Rows with most hangs come first, and the order of the plan comes back."""
    page = open_page(real)
    before = shown_rows(page)
    page.locator("#sort").select_option("worst")
    assert all("guard" in name or "fork" in name for name in shown_rows(page)[:8])
    page.locator("#sort").select_option("")
    assert shown_rows(page) == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(real: Path, open_page: Open, scheme: Any) -> None:
    """Every colour of an outcome can be read on its ground in both schemes: 4.5 to 1, as WCAG asks."""
    page = open_page(real, color_scheme=scheme)
    ratios = page.evaluate(
        """() => {
          const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
          const rgb = (colour) => {
            canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
          };
          const light = (colour) => rgb(colour).map((part) => part / 255)
            .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
            .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
          const found = {};
          for (const letter of "pvFHsCOnube") {
            const cell = document.createElement("td");
            cell.className = letter;
            cell.textContent = "x";
            document.querySelector("#grid tbody tr:not(.family)").append(cell);
            const style = getComputedStyle(cell), ground = style.backgroundColor;
            const card = getComputedStyle(document.querySelector(".scroller")).backgroundColor;
            const under = /, 0\\)|\\/ 0\\)|transparent/.test(ground) ? card : ground;
            const pair = [light(style.color), light(under)].sort((one, other) => other - one);
            found[letter] = (pair[0] + 0.05) / (pair[1] + 0.05);
            cell.remove();
          }
          return found;
        }"""
    )
    assert min(ratios.values()) >= 4.5, ratios


def test_dark_is_dark(real: Path, open_page: Open) -> None:
    """The system's scheme is followed, and the button overrules it."""
    page = open_page(real, color_scheme="dark")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="light / dark").click()
    light = page.evaluate(ground)
    assert sum(map(int, dark[4:-1].split(","))) < 120
    assert sum(map(int, light[4:-1].split(","))) > 650
    wait_for_view(page, "theme=light")


def test_narrow_screens(real: Path, open_page: Open) -> None:
    """On a phone nothing but the grid scrolls sideways, and a cell fills the screen."""
    page = open_page(real, viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("td.H").first.click()
    box = page.locator("#cell").bounding_box()
    assert box is not None
    assert round(box["width"]) == 390


def test_print(real: Path, open_page: Open) -> None:
    """On paper the whole grid is there, without what only a screen can do."""
    page = open_page(real, color_scheme="dark")
    page.emulate_media(media="print")
    expect(page.locator(".toolbar").first).to_be_hidden()
    box = page.locator("#grid").bounding_box()
    frame = page.locator(".scroller").bounding_box()
    assert box is not None
    assert frame is not None
    assert frame["height"] >= box["height"]
    assert page.evaluate("getComputedStyle(document.body).color").startswith("rgb(27")
    assert page.pdf()[:4] == b"%PDF"


def test_without_javascript(real: Path, open_page: Open) -> None:
    """The grid and the story stand in the page itself."""
    page = open_page(real, java_script_enabled=False)
    assert len(shown_rows(page)) == 29
    expect(page.locator("noscript")).to_be_visible()


def test_nothing_hostile_runs(hostile: Path, open_page: Open) -> None:
    """Texts that try to break out are shown, and run nothing; opening what they are in does not either."""
    page = open_page(hostile)
    for place in range(page.locator("#grid td:not(:empty)").count()):
        page.locator("#grid td:not(:empty)").nth(place).click()
        expect(page.locator("#cell h2")).to_be_visible()
    page.keyboard.press("Escape")
    page.wait_for_function("() => !location.hash.includes('cell=')")
    page.locator("#grid td.H").first.click()
    expect(page.locator("#cell pre", has_text="onerror").first).to_be_visible()
    assert "broken" not in page.title().split(":")[0]
    assert page.title().startswith("whichtorch r: 0 unexpected of 4")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    page.wait_for_function("() => location.hash.includes('cell=')")
    page.reload()
    expect(page.locator("#cell pre").first).to_be_visible()


def test_ten_thousand_cells(huge: Path, open_page: Open) -> None:
    """A page of ten thousand cells is all there, and filters to what is asked for."""
    page = open_page(huge)
    assert page.locator("#grid td").count() == 10_000
    page.locator("#text").fill("family_3")
    expect(page.locator("#shown")).to_contain_text("20 of 200 tests")
    assert len(shown_rows(page)) == 20


def test_an_opened_cell_has_its_numbers(tmp_path: Path, open_page: Open) -> None:
    """Its value, and the change with its interval; one that was measured has no attempts, but was run."""
    before, after = pages.environment("2.10.0"), pages.environment("2.11.0")
    numbers = [measurement(0.0, ""), measurement(0.2, before.label, effect=Effect.WORSE)]
    cells = [
        pages.cell(where, Outcome.PASS, attempts=(), numbers=(number,))
        for where, number in zip((before, after), numbers, strict=True)
    ]
    file = tmp_path / "run.html"
    file.write_text(pages.made(pages.stored([before, after], cells, tmp_path)))
    page = open_page(file)
    page.locator("#grid tbody td").nth(1).click()
    panel = page.locator("#cell")
    expect(panel.locator("section").first).to_contain_text("measured")
    expect(panel.locator("li").first).to_have_text(
        "wall 0.2443 s +22.1 % [+21.1, +23.1] against torch-2.10.0-cpu worse · 6 runs"
    )
