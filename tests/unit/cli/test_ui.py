"""`tidelog ui` serves the operators' page until Ctrl-C; `tidelog report` writes it as one file."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, section, tidelog, undocumented
from tests.support.jobs import filled
from tests.support.running import running_job
from tidelog import open_store
from tidelog.effects import Effects
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


@pytest.mark.parametrize("command", ["ui", "report"])
def test_a_place_without_a_store_is_an_error_and_no_page(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    options = ["--output", tmp_path / "page.html"] if command == "report" else []
    for place, says in (("typo", "found none. Next: check the URL"), ("file", "Next: ")):
        result = tidelog(command, tmp_path / place, *options)
        assert (result.exit_code, result.stdout) == (1, "")
        assert says in result.stderr and "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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
    assert undocumented({**shown, "page": ""}, section("ui, tidelog report")) == set()


def test_a_report_has_the_rates_of_a_running_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects, target = Effects(), tmp_path / "page.html"
    store = open_store(str(tmp_path / "store"), effects=effects)
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
