"""Serve the page of a run in progress, to this machine alone: three addresses, none of which names a file."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from quietnn.errors import QuietnnError
from quietnn.reports.page.document import compress, render_page
from quietnn.reports.page.watch import Watch

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 64
"""At a time."""

_HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
)


class LiveServer(ThreadingHTTPServer):
    """The page, its numbers, and how far the runs are; a page asks for the last again and again.

    Nothing of a request ever becomes a path: what can be read is what `Watch` read from its folders. A request must
    name this server in its `Host`, so that no foreign site can lead a browser here under a name of its own.
    Port 0 takes a free one.
    """

    daemon_threads = True

    def __init__(self, watch: Watch, *, port: int = 0) -> None:
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._looking = threading.Lock()
        super().__init__((LOOPBACK, port), _Handler)
        self.port: int = self.server_address[1]
        self.address = f"http://{LOOPBACK}:{self.port}/"
        self.watch, self.version = watch, 0
        self.progress()

    @contextmanager
    def running(self) -> Iterator["LiveServer"]:
        """Serve until the block ends."""
        thread = threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join(timeout=5)

    def progress(self) -> dict[str, Any]:
        """Look again, and say how far the runs are and which version of the numbers there is now.

        A trouble with the records takes the place of the note.
        """
        with self._looking:
            try:
                self.version += self.watch.look()
                trouble = self.watch.trouble
            except (QuietnnError, OSError) as error:
                trouble = str(error)
            except Exception as error:  # a page that shows the trouble is better than one that stands still
                trouble = f"these records cannot be shown ({type(error).__name__}: {error})"
            return {**self.watch.progress(), **({"note": trouble} if trouble else {}), "version": self.version}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; one connection too many is closed at once."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Give the place back, however the connection ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away or fell silent."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET for the page, its data and its progress, and refuses everything else."""

    server: LiveServer
    timeout = 30.0  # how long a connection may say or take nothing
    protocol_version = "HTTP/1.1"
    server_version = "quietnn"
    sys_version = ""

    def do_GET(self) -> None:
        live = self.server
        if self.headers.get("Host", "") not in {f"{name}:{live.port}" for name in (LOOPBACK, "localhost")}:
            self._refuse(HTTPStatus.FORBIDDEN, f"this page answers to {live.address} only")
        elif self.path == "/":
            self._send(render_page(live.watch.payload, live=True).encode(), "text/html; charset=utf-8")
        elif self.path == "/data":
            self._send(compress(live.watch.payload), "application/gzip")
        elif self.path == "/progress":
            self._send(compress(live.progress()), "application/gzip")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here but the page")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return lambda: self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this page can only be read")
        raise AttributeError(name)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the terminal belongs to the user."""

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._send(f"{why}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        for name, value in (*_HEADERS, ("Content-Type", kind), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
