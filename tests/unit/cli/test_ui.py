"""`tidelog ui` serves the operators' page until Ctrl-C."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.jobs import filled
from tidelog.cli.store.ui import has_screen
from tidelog.runtime.control.address import DIRECTORY_VARIABLE


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "store", filled())


@contextmanager
def running(*arguments: str | Path, sockets: Path) -> Iterator[subprocess.Popen[str]]:
    """`tidelog ui` in a process of its own."""
    command = [sys.executable, "-m", "tidelog", "ui", *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {DIRECTORY_VARIABLE: str(sockets)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_it_says_where_the_page_is_and_ends_by_ctrl_c(store: Path, tmp_path: Path) -> None:
    with running(store, "--json", sockets=tmp_path / "sockets") as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["url"] == store.as_uri()
        with urllib.request.urlopen(told["page"]) as answer:
            assert "<title>tidelog</title>" in answer.read().decode()
        with urllib.request.urlopen(told["page"] + "document.json?now") as answer:
            document = json.load(answer)
        assert (document["job"], document["phase"]) == ("every-kind", "finished")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        assert (process.returncode, out, err) == (130, "", "")
    assert files(store) == filled()


def test_for_people_it_prints_the_address(store: Path, tmp_path: Path) -> None:
    with running(store, "--no-browser", sockets=tmp_path / "sockets") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:")
        assert line.endswith(f"/ shows {store.as_uri()}; Ctrl-C ends it\n")


def test_a_port_in_use_is_an_error_that_says_what_to_do(store: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = tidelog("ui", store, "--port", port)
    assert result.exit_code == 2
    assert f"port {port}; expected a free port of this machine" in result.stderr
    assert "Next: pass another --port" in result.stderr


def test_a_store_without_a_job_is_an_error(tmp_path: Path) -> None:
    result = tidelog("ui", tmp_path / "typo")
    assert result.exit_code == 1
    assert "expected the slots of a job; found none. Next: check the URL" in result.stderr
    assert result.stdout == ""


def test_a_store_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    result = tidelog("ui", tmp_path / "file")
    assert result.exit_code == 1
    assert "Next: " in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("platform", "environment", "window"),
    [
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"TERM": "xterm", "DISPLAY": ""}, False),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_a_browser_is_opened_only_where_it_has_a_window(
    platform: str, environment: dict[str, str], window: bool
) -> None:
    assert has_screen(platform, environment) == window


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_port_is_a_number(port: str, store: Path) -> None:
    assert tidelog("ui", store, "--port", port).exit_code == 2
