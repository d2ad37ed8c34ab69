"""The pages for users lead where they say: README.md, CONTRIBUTING.md and docs/."""

import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.reports import reading

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LONGEST_README = 190  # lines: what a newcomer reads before the first command has ended


def links_of(page: Path) -> list[str]:
    """Return where the links and pictures of a page lead, but for other sites."""
    found = [
        token.attrGet("href") or token.attrGet("src") for token in reading.tokens(page.read_text(encoding="utf-8"))
    ]
    return [str(target) for target in found if target and not re.match(r"[a-z]+:", str(target))]


def anchors_of(page: Path) -> set[str]:
    """Return the names of a page's headings, as GitHub makes them."""
    tokens = reading.tokens(page.read_text(encoding="utf-8"))
    heads = [reading.shown(inline) for head, inline in pairwise(tokens) if head.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    wrong = []
    for link in links_of(page):
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page leads to a file that is there, and to a heading that it has."""
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """A file or a heading that is not there is told; other sites, files and headings that are there are not."""
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`: 3\n[a](page.md) [b](#one-two-3) [c](gone.md) [d](page.md#gone) [e](https://x.org/y)\n"
    )
    assert broken(page) == ["gone.md", "page.md#gone"]


def test_every_page_is_linked_from_the_readme() -> None:
    """A reader finds each page of docs/ from README.md."""
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links_of(ROOT / "README.md")}
    assert sorted(set(PAGES) - {ROOT / "README.md"} - linked) == []


def test_every_page_has_its_place_on_the_site() -> None:
    """The navigation of the documentation site lists each page of docs/ once."""
    listed = re.findall(r'"([\w-]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_readme_is_short() -> None:
    """README.md is read in a few minutes: its details are in docs/."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LONGEST_README


def test_no_page_denies_a_session() -> None:
    """Every command has a nox session, and no page says that one has none."""
    sessions = re.findall(r'"(\w[\w-]*)": "', (ROOT / "noxfile.py").read_text(encoding="utf-8"))
    sentences = [sentence for page in PAGES for sentence in page.read_text(encoding="utf-8").split(".")]
    denied = [sentence.rpartition("no nox session")[0] for sentence in sentences]
    assert sessions
    assert [(name, text) for text in denied for name in sessions if f"`{name}`" in text] == []
