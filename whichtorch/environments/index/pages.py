"""Read what an index or a page of links says of torch. Imported only where that is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urljoin

import pypi_simple
import requests

from whichtorch.environments.index.sources import PROJECT

INDEX_TIMEOUT = 20.0  # seconds without a byte before an index counts as not answering
PAUSES = (1.0, 2.0)  # seconds before the second and third try of an index
_CAUSES = {  # what the text of an error holds: the first that fits is told
    "Name or service not known": "its name cannot be resolved",
    "Temporary failure in name resolution": "its name cannot be resolved",
    "NameResolutionError": "its name cannot be resolved",
    "Connection refused": "the connection is refused",
    "IncompleteRead": "the answer ends half-way",
    "Connection broken": "the answer ends half-way",
    "RemoteDisconnected": "the connection is closed without an answer",
    "Connection reset": "the connection is reset",
}
Result = TypeVar("Result")


class PageError(Exception):
    """A page could not be read; `may_pass` where another try is worth it."""

    def __init__(self, problem: str, *, may_pass: bool) -> None:
        super().__init__(problem)
        self.problem = problem
        self.may_pass = may_pass


def read_file(page: Path) -> list[pypi_simple.DistributionPackage]:
    """Return what a page in a file links to."""
    return _parse(page.read_bytes(), page.as_uri())


@contextmanager
def session(certificates: str | None) -> Iterator[requests.Session]:
    """Yield a session for the network. Raises PageError for whatever goes wrong in it."""
    try:
        with requests.Session() as opened:
            if certificates and Path(certificates).exists():
                opened.verify = certificates
            yield opened
    except requests.RequestException as error:
        raise _page_error(error) from error
    except pypi_simple.DigestMismatchError as error:
        raise PageError("its digest is not the one that the index names", may_pass=False) from error
    except (pypi_simple.UnsupportedContentTypeError, pypi_simple.UnsupportedRepoVersionError, ValueError) as error:
        raise PageError(f"it is not a package index ({type(error).__name__})", may_pass=False) from error


def fetch(
    url: str, *, is_index: bool, certificates: str | None = None, project: str = PROJECT
) -> list[pypi_simple.DistributionPackage]:
    """Return what a page over the network links to. Raises PageError."""
    with session(certificates) as opened:
        if is_index:
            client = pypi_simple.PyPISimple(url, session=opened, accept=pypi_simple.ACCEPT_ANY)
            with suppress(pypi_simple.NoSuchProjectError):
                return client.get_project_page(project, timeout=INDEX_TIMEOUT).packages
            return []
        answer = opened.get(url, timeout=INDEX_TIMEOUT)
        answer.raise_for_status()
        return _parse(answer.content, url)


def retried(action: Callable[[], Result]) -> Result:
    """Try an action up to three times, as long as another try may help. Raises PageError."""
    for seconds in PAUSES:
        try:
            return action()
        except PageError as error:
            if not error.may_pass:
                raise
            time.sleep(seconds)
    return action()


def _parse(html: bytes, base: str | None) -> list[pypi_simple.DistributionPackage]:
    packages = pypi_simple.ProjectPage.from_html(PROJECT, html, base_url=base).packages
    for package in packages:
        package.url = urljoin(base or "", package.url)
        # the text of a link is often shortened; its address is what counts
        if not package.filename.endswith(".whl"):
            package.filename = unquote(package.url.rpartition("/")[2])
    return packages


def _page_error(error: requests.RequestException) -> PageError:
    """Return why a request failed, in words without the URL and its credentials."""
    if isinstance(error, requests.HTTPError):
        status = 0 if error.response is None else error.response.status_code
        return PageError(f"it answers {status}", may_pass=status >= 500 or status in {408, 429})
    if isinstance(error, (requests.exceptions.MissingSchema, requests.exceptions.InvalidURL)):
        return PageError("that is not a URL", may_pass=False)
    if isinstance(error, requests.Timeout):
        return PageError("it does not answer in time", may_pass=True)
    if isinstance(error, requests.exceptions.SSLError):
        return PageError("its certificate is not trusted", may_pass=True)
    causes = (cause for fragment, cause in _CAUSES.items() if fragment in str(error))
    return PageError(next(causes, type(error).__name__), may_pass=True)
