"""An index that misbehaves: the environments cannot be made, and a line says why; later they can."""

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.faults.fault import Fault, Moment
from bench.faults.ground import SMALL, BrokenError, Fields, Ground

LONG = 600.0  # seconds that nobody waits for
LINK = b'<a href="/files/torch-%d.0.0-py3-none-any.whl">torch-%d.0.0-py3-none-any.whl</a><br/>\n'


class _Handler(BaseHTTPRequestHandler):
    behind = ""  # the address of the index that behaves
    fault = ""
    at = "/"  # where the fault is
    over: threading.Event

    def do_GET(self) -> None:
        with suppress(OSError):
            misbehave = getattr(self, self.fault) if self.at in self.path else self.pass_on
            misbehave()

    do_HEAD = do_GET  # noqa: N815  the name that http.server looks for

    def answer(self, status: int, body: bytes, kind: str = "text/html", length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def pass_on(self) -> None:
        with urllib.request.urlopen(self.behind + self.path) as found:
            self.answer(200, found.read(), found.headers["Content-Type"])

    def hangs(self) -> None:
        self.over.wait(LONG)

    def fails(self) -> None:
        self.answer(500, b"no")

    def trickles(self) -> None:
        self.answer(200, b"<", length=10**6)
        while not self.over.wait(1.0):
            self.wfile.write(b"a")

    def ends_early(self) -> None:
        self.answer(200, b"<!DOCTYPE html><html><body><a href", length=4000)

    def is_an_image(self) -> None:
        self.answer(200, bytes(range(256)) * 10, "image/png")

    def wants_a_login(self) -> None:
        self.answer(200, b"<!DOCTYPE html><html><body><form>user</form></body></html>")

    def is_broken_json(self) -> None:
        self.answer(200, b'{"files": [{"filename": 3}]', "application/vnd.pypi.simple.v1+json")

    def redirects(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def is_huge(self) -> None:
        links = b"".join(LINK % (number, number) for number in range(10_000))
        times = 10**8 // len(links)
        self.answer(200, b"", length=times * len(links))
        for _ in range(times):
            self.wfile.write(links)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def misbehaving(fault: str, at: str, behind: str) -> Iterator[str]:
    """Serve an index that misbehaves where a path holds `at`."""
    members = {"fault": fault, "at": at, "behind": behind.removesuffix("/simple"), "over": threading.Event()}
    handler = type("Handler", (_Handler,), members)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    finally:
        members["over"].set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()


def strike(fault: str, at: str, fields: Fields, ground: Ground, moment: Moment) -> None:
    """Give a command whose index misbehaves; then one whose index does not."""
    calm = fields.calm(SMALL)
    with misbehaving(fault, at, fields.index.url) as url:
        since = time.monotonic()
        words = (*SMALL.words, "--install-timeout", "30s")
        ended = ground.give(words, {"UV_DEFAULT_INDEX": url, "UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "1"})
        ground.check_line(ended, 2, 3)
        ground.check_verdicts(calm)
        if "127.0.0.1" not in ended.output and "torch" not in ended.output:
            raise BrokenError(f"no word of the index after {time.monotonic() - since:.0f} s: {ended.output[-800:]}")
    ground.check_recovery(SMALL, calm)


def refused(fields: Fields, ground: Ground, moment: Moment) -> None:
    """Give a command whose index nobody serves."""
    ended = ground.give(SMALL.words, {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"})
    ground.check_line(ended, 2, 3)
    ground.check_recovery(SMALL, fields.calm(SMALL))


PAGE, FILE = "/simple/torch", "/files/torch"
FAULTS = [
    Fault("network", "an index that is not there", refused),
    *(
        Fault("network", name, partial(strike, fault, at))
        for name, fault, at in (
            ("an index that hangs", "hangs", PAGE),
            ("a wheel that hangs", "hangs", FILE),
            ("an index that answers 500", "fails", PAGE),
            ("a wheel that answers 500", "fails", FILE),
            ("an index that trickles", "trickles", PAGE),
            ("half an index page", "ends_early", PAGE),
            ("half a wheel", "ends_early", FILE),
            ("an image for an index page", "is_an_image", PAGE),
            ("an image for a wheel", "is_an_image", FILE),
            ("a login page for an index page", "wants_a_login", PAGE),
            ("broken JSON for an index page", "is_broken_json", PAGE),
            ("an index that redirects for ever", "redirects", PAGE),
            ("a wheel that redirects for ever", "redirects", FILE),
            ("an index page of 100 MB", "is_huge", PAGE),
        )
    ),
]
