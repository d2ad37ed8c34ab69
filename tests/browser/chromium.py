"""The Chromium of the system, started."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser; raise FileNotFoundError with the remedy where there is none."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        raise FileNotFoundError(f"no Chromium on PATH ({', '.join(NAMES)}): apt-get install chromium")
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to run as root with one
        started = playwright.chromium.launch(executable_path=path, args=options)
        yield started
        started.close()
