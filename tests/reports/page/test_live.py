"""The live page: folders looked at again and again; a server for this machine, reading, three addresses only."""

import gzip
import http.client
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quietnn import records as store
from quietnn.records import Record
from quietnn.reports.page.live import LiveServer, Watch

Make = Callable[..., list[Record]]
Write = Callable[..., Path]


@pytest.fixture
def folder(make_records: Make, write_run: Write, tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    found = make_records(num_draws=1, methods=("ml", "mmse"), with_trials=False)
    path = write_run(tmp_path / "run", found)
    (path / "secret.txt").write_text("secret")
    return path


@pytest.fixture
def live(folder: Path) -> Iterator[LiveServer]:
    with LiveServer(Watch([folder])).running() as server:
        yield server


def ask(live: LiveServer, path: str = "/", *, host: str | None = None, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{live.port}")
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_the_page_and_its_data_are_served(live: LiveServer) -> None:
    status, page = ask(live)
    assert status == 200
    assert b"data-live" in page
    status, data = ask(live, "/data", host=f"localhost:{live.port}")
    assert status == 200
    assert json.loads(gzip.decompress(data))["title"] == "Handwritten digits under weight noise"


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/records.jsonl",
        "/../secret.txt",
        "/data/../../secret.txt",
        "/..%2fsecret.txt",
        "//etc/passwd",
        "/data?file=../secret.txt",
        "http://127.0.0.1/etc/passwd",
    ],
)
def test_no_path_leads_to_a_file(live: LiveServer, path: str) -> None:
    status, body = ask(live, path)
    assert status == 404
    assert b"secret" not in body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil:{port}"]
)
def test_foreign_hosts_are_refused(live: LiveServer, host: str) -> None:
    for path in ("/", "/data", "/progress"):
        status, body = ask(live, path, host=host.format(port=live.port))
        assert status == 403
        assert b"digits" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_it_can_only_be_read(live: LiveServer, method: str) -> None:
    assert ask(live, method=method)[0] == 405


def test_it_listens_on_loopback_alone(live: LiveServer) -> None:
    assert live.server_address[0] == "127.0.0.1"
    assert live.address == f"http://127.0.0.1:{live.port}/"


def test_nothing_is_kept_or_guessed_by_the_browser(live: LiveServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=20)
    connection.request("GET", "/data")
    headers = connection.getresponse().headers
    connection.close()
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_progress_tells_of_a_new_record(live: LiveServer, folder: Path, make_records: Make) -> None:
    first = progress(live)
    assert progress(live) == first
    extra = make_records(num_draws=2, methods=("ml",), with_trials=False)[-1:]
    store.append(folder / "records.jsonl", extra)
    later = progress(live)
    assert (later["done"], later["version"]) == (first["done"] + 1, first["version"] + 1)


def test_broken_records_are_said_and_the_page_stays(live: LiveServer, folder: Path) -> None:
    with (folder / "records.jsonl").open("a") as file:
        file.write("not a record\n")
    assert "is not a record" in progress(live)["note"]
    assert ask(live)[0] == 200


def progress(live: LiveServer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(ask(live, "/progress")[1]))
    return found


def test_the_server_ends_with_its_block(folder: Path) -> None:
    with LiveServer(Watch([folder])).running() as live:
        port = live.port
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def raw(live: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.port), timeout=20)


def test_one_connection_too_many_is_closed_and_places_come_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quietnn.reports.page.live.MOST_CONNECTIONS", 3)
    with LiveServer(Watch([folder])).running() as live:
        silent = [raw(live) for _ in range(3)]
        wait_until(lambda: refused(live))
        for connection in silent:
            connection.close()
        wait_until(lambda: not refused(live))
        assert ask(live)[0] == 200


def refused(live: LiveServer) -> bool:
    try:
        return ask(live)[0] != 200
    except (ConnectionError, http.client.HTTPException):
        return True


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_connection_that_says_nothing_is_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quietnn.reports.page.live._Handler.timeout", 0.2)
    with LiveServer(Watch([folder])).running() as live, raw(live) as connection:
        connection.sendall(b"GET / HT")
        assert connection.recv(1) == b""


def test_a_browser_that_hangs_up_leaves_no_traceback(live: LiveServer, capfd: pytest.CaptureFixture[str]) -> None:
    for path in ("/", "/data", "/progress") * 3:
        connection = raw(live)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not closed
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\n\r\n".encode())
        connection.close()
    assert ask(live)[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_one_bad_record_does_not_freeze_the_page(live: LiveServer, folder: Path) -> None:
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"method": "ml", "wnr_db": [3], "draw": 0, "accuracy": 0.5}\n')
    assert "wnr_db is [3]" in progress(live)["note"]
    store.append(folder / "records.jsonl", [{"method": "ml", "wnr_db": 1.0, "draw": 0, "accuracy": 0.5}])
    assert "line" in progress(live)["note"]
    assert any(record["wnr_db"] == 1.0 for record in live.watch.runs[0].records)


class Clock:
    """Time that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_look_sees_new_records_and_nothing_else(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    found = make_records(num_draws=1, methods=("ml", "mmse"), with_trials=False)
    folder = write_run(tmp_path / "run", found[:-1])
    watch = Watch([folder])
    assert watch.look()
    assert not watch.look()
    assert watch.payload["results"][0]["numRows"] == len(found) - 1
    store.append(folder / "records.jsonl", found[-1:])
    assert watch.look()
    assert watch.payload["results"][0]["numRows"] == len(found)


def test_a_folder_that_is_not_there_yet_is_waited_for(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    watch = Watch([tmp_path / "later"])
    assert watch.look()
    assert watch.payload["notices"] == ["later holds no records yet."]
    write_run(tmp_path / "later", make_records(num_draws=1, methods=("ml",), with_trials=False))
    assert watch.look()
    assert watch.payload["tasks"][0]["name"] == "digits"


def test_time_left_follows_the_pace_of_work(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    found = make_records(num_draws=2, wnrs=(-6.0,), methods=("ml", "mmse_pb_layerwise"))
    clean, ml0, slow0, ml1, slow1 = found
    config = {"wnr_db": [-6.0], "num_draws": 2, "methods": ["ml", "mmse_pb_layerwise"]}
    folder = write_run(tmp_path / "run", [clean, ml0], **config)
    clock = Clock()
    watch = Watch([folder], clock=clock)
    watch.look()
    progress = watch.progress()
    assert (progress["done"], progress["total"]) == (2, 5)
    assert progress["left"] == "time left is known after the next record"
    clock.now += 84.0
    store.append(folder / "records.jsonl", [slow0])
    watch.look()
    # The slow record took 84 s for its 4.2; what is left weighs 4.2 + 0.02.
    assert watch.progress()["left"] == "about 84 s left"
    clock.now += 300.0
    assert watch.progress()["note"] == "last record 5 min ago"
    store.append(folder / "records.jsonl", [ml1, slow1])
    watch.look()
    assert (watch.progress()["left"], watch.progress()["note"]) == ("", "")


def test_without_a_plan_only_the_count_is_known(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", make_records(num_draws=1, methods=("ml",)))
    (folder / "config.json").unlink()
    watch = Watch([folder])
    watch.look()
    assert watch.progress()["total"] is None


def test_a_broken_record_is_named_and_the_next_is_shown(make_records: Make, write_run: Write, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", make_records(num_draws=1, methods=("ml",)))
    watch = Watch([folder])
    watch.look()
    num_before = len(watch.runs[0].records)
    bad = {"method": "ml", "wnr_db": 0.0, "draw": 0, "accuracy": 60}
    store.append(folder / "records.jsonl", [bad, bad | {"accuracy": 0.6, "draw": 7}])
    assert watch.look()
    assert len(watch.runs[0].records) == num_before + 1
    line = num_before + 1
    assert watch.trouble == (
        f"left out {folder / 'records.jsonl'}, line {line} is not a record "
        "(accuracy is 60; it must be a number from 0 to 1)"
    )
