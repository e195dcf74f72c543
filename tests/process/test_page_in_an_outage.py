"""The page is of use when the store does not answer: that is when one wants it."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.process.harness import Run, killed_at_last, started, wait_until
from tests.process.on_a_server import job_on_a_server
from tests.wire.proxy import Behaviour
from tests.wire.servers import S3Server


@contextmanager
def page_of(run: Run) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`tidelog ui` in a process of its own, and its address."""
    env = {**os.environ, **run.env}
    with killed_at_last(started("ui", run.store, "--json", env=env)) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)["page"]


def document(page: str, query: str = "") -> Mapping[str, Any]:
    with urllib.request.urlopen(f"{page}document.json{query}", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def says_since_when(shown: Mapping[str, Any]) -> bool:
    return any("none since 20" in problem["found"] for problem in shown["problems"])


def test_the_half_of_the_job_is_shown_at_once_and_that_of_the_store_says_since_when_it_is_silent(
    tmp_path: Path, moto: S3Server, behaviour: Behaviour
) -> None:
    with job_on_a_server(tmp_path, moto, behaviour) as (_, run), page_of(run) as (before, opened):
        assert document(opened)["retained"]
        behaviour.stalls.set()
        assert behaviour.awaited.wait(60)
        # Read before the outage: what was known is shown, and that it may be old.
        wait_until(lambda: says_since_when(document(opened, "?now")), before)
        shown = document(opened)
        assert shown["live"]["status"]["phase"] == "running" and shown["retained"]
        # Opened amid the outage.
        with page_of(run) as (late, page):
            shown = document(page)
            assert (shown["job"], shown["live"]["status"]["phase"]) == ("copy", "running")
            assert says_since_when(shown) and shown["retained"] == []
            behaviour.stalls.clear()
            wait_until(lambda: bool(document(page, "?now")["retained"]), late)
            wait_until(lambda: not says_since_when(document(page, "?now")), late)
