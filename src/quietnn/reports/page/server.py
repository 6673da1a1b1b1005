"""Serve the page of a run in progress, to this machine alone: three addresses, none of which names a file."""

import json
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
"""At a time; a page holds one open for its events."""

IDLE_SECONDS = 30.0
"""How long a connection may say or take nothing."""

_NAMES = ("127.0.0.1", "localhost")


class LiveServer:
    """The page, its numbers and the news about them.

    Nothing of a request ever becomes a path: what can be read is what `Watch` read from its folders. A request must
    name this server in its `Host`, so that no foreign site can lead a browser here under a name of its own.
    Port 0 takes a free one. The interval is in seconds between two looks, at least; after a long look the pause is
    three times as long as it took.
    """

    def __init__(self, watch: Watch, *, port: int = 0, interval: float = 1.0) -> None:
        self.watch, self.interval = watch, interval
        self.changed = threading.Condition()
        self.version = 0
        self.trouble = ""
        self.stopped = threading.Event()
        self._server = _Server((LOOPBACK, port), type("Handler", (_Handler,), {"live": self, "timeout": IDLE_SECONDS}))
        self.port: int = self._server.server_address[1]
        self._look()

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.port}/"

    @contextmanager
    def running(self) -> Iterator["LiveServer"]:
        """Serve until the block ends."""
        threads = [threading.Thread(target=work, daemon=True) for work in (self._serve, self._keep_looking)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self.stopped.set()
            with self.changed:
                self.changed.notify_all()
            self._server.shutdown()
            self._server.server_close()
            for thread in threads:
                thread.join(timeout=5)

    def progress(self) -> str:
        """How far the runs are, as JSON; a trouble with the records takes the place of the note."""
        return json.dumps(self.watch.progress() | ({"note": self.trouble} if self.trouble else {}))

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.1)

    def _look(self) -> float:
        """One look; returns the seconds it took."""
        began = self.watch.clock()
        try:
            fresh = self.watch.look()
            trouble = self.watch.trouble
        except (QuietnnError, OSError) as error:
            fresh, trouble = False, str(error)
        except Exception as error:  # a page that shows the trouble is better than one that stands still
            fresh, trouble = False, f"these records cannot be shown ({type(error).__name__}: {error})"
        with self.changed:
            if fresh or trouble != self.trouble:
                self.version += 1
                self.trouble = trouble
                self.changed.notify_all()
        return self.watch.clock() - began

    def _keep_looking(self) -> None:
        pause = self.interval
        while not self.stopped.wait(pause):
            pause = max(self.interval, 3 * self._look())


class _Server(ThreadingHTTPServer):
    """Standard, but for a limit on connections, and for silence where a browser hangs up."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(*arguments)

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
    """Answers GET for the page, its data and its events, and refuses everything else."""

    live: LiveServer
    protocol_version = "HTTP/1.1"
    server_version = "quietnn"
    sys_version = ""

    def do_GET(self) -> None:
        if self.headers.get("Host", "") not in {f"{name}:{self.live.port}" for name in _NAMES}:
            self._refuse(HTTPStatus.FORBIDDEN, f"this page answers to {self.live.address} only")
        elif self.path == "/":
            self._send(render_page(self.live.watch.payload, live=True).encode(), "text/html; charset=utf-8")
        elif self.path == "/data":
            self._send(compress(self.live.watch.payload), "application/gzip")
        elif self.path == "/events":
            self._stream()
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here but the page")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return lambda: self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this page can only be read")
        raise AttributeError(name)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the terminal belongs to the user."""

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self._headers(kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._send(f"{why}\n".encode(), "text/plain; charset=utf-8", status)

    def _headers(self, kind: str) -> None:
        for name, value in (
            ("Content-Type", kind),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)

    def _stream(self) -> None:
        """Server-sent events: the progress every few seconds, and a word whenever the numbers changed."""
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        self._headers("text/event-stream")
        self.end_headers()
        seen = -1
        try:
            while not self.live.stopped.is_set():
                with self.live.changed:
                    if self.live.version == seen:
                        self.live.changed.wait(timeout=5.0)
                    fresh, seen = self.live.version != seen, self.live.version
                news = f"event: changed\ndata: {seen}\n\n" if fresh else ""
                self.wfile.write(f"{news}event: progress\ndata: {self.live.progress()}\n\n".encode())
                self.wfile.flush()
        except (ConnectionError, TimeoutError):
            return
