"""The Chromium of the system, and pages to open in it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import chromium
from tests.reports import pages

Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start the browser."""
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Return what opens a file in a fresh context; whatever the page complains of fails the test."""
    contexts, complaints = [], []

    def open_file(file: Path, view: str = "", **options: Any) -> Page:
        context = browser.new_context(**options)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        opened = context.new_page()
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        opened.on(
            "request", lambda request: None if request.url.startswith("file:") else complaints.append(request.url)
        )
        opened.goto(file.as_uri() + view)
        return opened

    yield open_file
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a real run with all that can be on it."""
    run = pages.real()
    text = pages.made(run, pages.compared(run), pages.nights(run.result.run), [pages.bisection()])
    return _written(text, tmp_path_factory)


@pytest.fixture(scope="session")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of ten thousand cells, each tenth of them red with much output."""
    run = pages.huge(tmp_path_factory.mktemp("state"))
    return _written(pages.made(run, pages.compared(run), pages.nights(run.result.run, 60)), tmp_path_factory)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a run in which every text tries to break out."""
    run = pages.hostile(tmp_path_factory.mktemp("state"))
    return _written(pages.made(run, pages.compared(run)), tmp_path_factory)


def _written(text: str, factory: pytest.TempPathFactory) -> Path:
    path = factory.mktemp("page") / "index.html"
    path.write_text(text, encoding="utf-8")
    return path
