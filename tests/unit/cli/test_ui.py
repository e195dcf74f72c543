"""`tidelog ui` serves the operators' page until Ctrl-C; `tidelog report` writes it as one file."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import damaged, flipped
from tests.support.jobs import filled
from tests.support.running import running_job
from tidelog import Effects, open_store
from tidelog.cli.store.ui import has_screen
from tidelog.runtime.control.protocol import DIRECTORY_VARIABLE


@contextmanager
def running(*arguments: str | Path, sockets: Path) -> Iterator[subprocess.Popen[str]]:
    """`tidelog ui` in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "ui", *map(str, arguments)],
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


def test_a_port_in_use_is_an_error_that_says_what_to_do(store: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = tidelog("ui", store, "--port", port)
    assert result.exit_code == 2
    assert f"port {port}; expected a free port of this machine" in result.stderr
    assert "Next: pass another --port" in result.stderr


@pytest.mark.parametrize("command", ["ui", "report"])
def test_a_place_without_a_store_is_an_error_and_no_page(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    options = ["--output", tmp_path / "page.html"] if command == "report" else []
    for place, says in (("typo", "found none. Next: check the URL"), ("file", "Next: ")):
        result = tidelog(command, tmp_path / place, *options)
        assert (result.exit_code, result.stdout) == (1, "")
        assert says in result.stderr and "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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


def embedded(page: Path) -> Any:
    """The document in a page."""
    data = page.read_text().partition('type="application/json" id="document">')[2]
    return json.loads(data.partition("</script>")[0])


def test_a_report_is_one_file_and_nothing_goes_into_the_store(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "report.html"
    target.write_text("older")
    result = tidelog("report", store)
    assert result.exit_code == 0, result.output
    size = target.stat().st_size
    assert result.stdout == f"report.html: {size / 1e6:.2f} MB\n"
    document = embedded(target)
    assert (document["job"], document["url"]) == ("every-kind", store.as_uri())
    assert document["live"] is None and files(store) == filled()
    shown = json.loads(tidelog("report", store, "--output", target, "--json").stdout)
    size = target.stat().st_size
    assert shown == {"url": store.as_uri(), "output": str(target), "bytes": size, "problems": 0}
    guide = (Path(__file__).parents[3] / "docs" / "reference" / "cli-json.md").read_text()
    section = guide.partition("## tidelog ui, tidelog report")[2].partition("\n## ")[0]
    assert {name for name in {*shown, "page"} if f"`{name}`" not in section} == set()


def test_a_missing_directory_is_an_error_that_says_what_to_do(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "missing" / "page.html"
    result = tidelog("report", store, "--output", target)
    assert result.exit_code == 2
    assert f"--output {target}; expected a file that can be written" in result.stderr
    assert "found No such file or directory. Next: choose another path" in result.stderr


def test_damage_is_reported_and_the_page_is_written(tmp_path: Path) -> None:
    name = "checkpoints/00000009.json"
    store = lay_out(tmp_path / "store", damaged(filled(), name, flipped))
    target = tmp_path / "page.html"
    result = tidelog("report", store, "--output", target)
    assert result.exit_code == 1
    assert name in result.stdout and "  next: bring the object back from a backup" in result.stdout
    [problem] = embedded(target)["problems"]
    assert problem["where"] == name


def test_a_report_has_the_rates_of_a_running_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects, target = Effects(), tmp_path / "page.html"
    store = open_store(str(tmp_path / "store"), effects)
    with tempfile.TemporaryDirectory(prefix="tlc") as sockets:
        monkeypatch.setenv(DIRECTORY_VARIABLE, sockets)
        with running_job(store, tmp_path / "work"):
            result = tidelog("report", tmp_path / "store", "--output", target)
    effects.offload.close()
    assert target.exists(), result.output
    document = embedded(target)
    assert document["phase"] == "running"
    rates = [operator["records_per_s"] for operator in document["live"]["now"]]
    assert rates and None not in rates and max(rates) > 0
    assert [point for point in document["checkpoints"] if point.get("phases")]
