"""A package index on this machine that serves a folder of wheels, and misbehaves when told to."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

TIMEOUT = 30.0  # seconds a held answer waits at most: a test that failed must not keep the server


@dataclass
class Index:
    """What the index does. Change it while it runs."""

    folder: Path
    url: str = ""  # of the simple index
    yanked: dict[str, str] = field(default_factory=dict)  # file name -> reason
    uploaded: dict[str, str] = field(default_factory=dict)  # file name -> time; makes it answer in JSON
    sizes: bool = False  # publish sizes; makes it answer in JSON
    digests: dict[str, str] = field(default_factory=dict)  # file name -> sha256 to publish
    failing: int = 0  # so many next answers are 503
    dying: int = 0  # so many next answers end half-way
    held: threading.Event | None = None  # answers wait until it is set
    at: str = ""  # only where the path holds this does it fail, die or wait
    paths: list[str] = field(default_factory=list)  # that were requested, in order
    arrived: threading.Event = field(default_factory=threading.Event)  # something was asked

    def pages_of(self, project: str) -> int:
        """Return how often a project's page was asked for."""
        return self.paths.count(f"/simple/{project}/")


@contextmanager
def serve(folder: Path) -> Iterator[Index]:
    """Serve the wheels in `folder` as a simple index on a free port."""
    index = Index(folder=folder)

    class Handler(_Handler):
        index_state = index

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    # polled often: `shutdown` waits for the next look
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    index_state: Index
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with suppress(ConnectionResetError):  # who asked was killed
            super().handle()

    def do_GET(self) -> None:
        index, path = self.index_state, unquote(self.path)
        index.paths.append(path)
        index.arrived.set()
        if index.held is not None and index.at in path:
            index.held.wait(TIMEOUT)
        if index.failing and index.at in path:
            index.failing -= 1
            self._answer(503, b"", "text/plain")
        elif path.startswith("/simple/"):
            self._page(path.removeprefix("/simple/").strip("/"))
        else:
            wheel = index.folder / Path(path).name
            found = wheel.is_file()
            self._answer(200 if found else 404, wheel.read_bytes() if found else b"", "application/zip")

    do_HEAD = do_GET  # noqa: N815  the name that http.server looks for

    def _page(self, project: str) -> None:
        index = self.index_state
        wheels = [wheel for wheel in sorted(index.folder.glob("*.whl")) if _project(wheel) == project]
        if not wheels:
            self._answer(404, b"", "text/plain")
        elif index.uploaded or index.sizes:
            files = [self._described(wheel) for wheel in wheels]
            page = {"meta": {"api-version": "1.1"}, "name": project, "versions": [], "files": files}
            self._answer(200, json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json")
        else:
            links = [f"<a {self._attributes(wheel)}>{wheel.name}</a><br/>" for wheel in wheels]
            page_html = "<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>"
            self._answer(200, page_html.encode(), "text/html")

    def _attributes(self, wheel: Path) -> str:
        yanked = self.index_state.yanked.get(wheel.name)
        mark = "" if yanked is None else f' data-yanked="{yanked}"'
        digest = self.index_state.digests.get(wheel.name)
        fragment = "" if digest is None else f"#sha256={digest}"
        return f'href="/files/{quote(wheel.name)}{fragment}"{mark}'

    def _described(self, wheel: Path) -> dict[str, object]:
        index = self.index_state
        found: dict[str, object] = {
            "filename": wheel.name,
            "url": f"/files/{quote(wheel.name)}",
            "hashes": {},
            "size": wheel.stat().st_size,
        }
        if wheel.name in index.uploaded:
            found["upload-time"] = index.uploaded[wheel.name]
        if wheel.name in index.yanked:
            found["yanked"] = index.yanked[wheel.name] or True
        return found

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        index = self.index_state
        dies = bool(index.dying) and status == 200 and index.at in unquote(self.path) and self.command == "GET"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if dies:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        if dies:
            index.dying -= 1
            self.close_connection = True
        try:
            self.wfile.write(body[: len(body) // 2] if dies else body)
        except (BrokenPipeError, ConnectionResetError):  # who asked was killed
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def _project(wheel: Path) -> str:
    return re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()
