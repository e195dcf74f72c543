"""No credential of a job is in what it prints, logs, serves or stores, and no key on its pages.

Real commands against a real server, with a secret in every place that a user may give one.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.process.harness import Run, killed_at_last, started, wait_until
from tests.support.cli import files
from tests.support.ports import free_port
from tests.wire.forking import Forking, forking
from tests.wire.proxy import Behaviour, proxy
from tests.wire.servers import S3Server
from tidelog.storage.config import S3Client

KEY_ID = "AKIASENTINELKEY"
SECRET = "sentinel/secret+key-of-aws"
TOKEN = "sentinel-session-token"
PASSWORD = "sentinel-password"
SECRETS = (KEY_ID, SECRET, TOKEN, PASSWORD)
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": KEY_ID,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": TOKEN,
    "AWS_DEFAULT_REGION": "us-east-1",
    "PGPASSWORD": PASSWORD,
    "AZURE_STORAGE_CONNECTION_STRING": f"AccountName=me;AccountKey={PASSWORD}",
}
KEYS = ("sentinelword", "anothersentinel")
"""Keys of the job's state."""


@pytest.fixture
def server(moto: S3Server, s3_client: S3Client, behaviour: Behaviour) -> Iterator[S3Server]:
    """A bucket of its own in moto, which takes any credentials, behind a proxy."""
    with proxy(moto.endpoint, behaviour) as endpoint:
        yield replace(moto, endpoint=endpoint, bucket=f"kept-{s3_client}").with_bucket()


class Shown:
    """All that was shown somewhere, by the place."""

    def __init__(self, commands: Forking) -> None:
        self._commands = commands
        self.texts: dict[str, bytes] = {}

    def run(self, *arguments: str, exit_code: int | None = 0) -> str:
        """Run a command with all there is to print; what it printed on standard output."""
        done = self._commands.run(["--log-level", "debug", *arguments])
        self.texts[" ".join(arguments)] = done.stdout + done.stderr
        assert exit_code in (None, done.returncode), (arguments, done.stderr.decode()[-2000:])
        return done.stdout.decode()

    def check(self, sought: tuple[str, ...]) -> None:
        """None of these is anywhere."""
        for place, text in self.texts.items():
            for each in sought:
                assert each.encode() not in text, (place, each)


@pytest.fixture
def client(server: S3Server) -> Iterator[Any]:
    """One for all looks: a new one takes longer than the job does for a checkpoint."""
    with closing(server.client()) as client:
        yield client


def slots(server: S3Server, client: Any) -> list[str]:
    """Names of the job's manifests; one request, as the job needs the server meanwhile."""
    answer = client.list_objects_v2(Bucket=server.bucket, Prefix="store/checkpoints/")
    return [item["Key"] for item in answer.get("Contents", ())]


def stored(server: S3Server, client: Any) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=server.bucket):
        for item in page.get("Contents", ()):
            with suppress(client.exceptions.NoSuchKey):  # deleted since
                answer = client.get_object(Bucket=server.bucket, Key=item["Key"])
                found[item["Key"]] = answer["Body"].read()
    return found


def page_of(env: dict[str, str], url: str) -> dict[str, bytes]:
    """What `tidelog ui` serves."""
    command = ("ui", url, "--json", "--no-browser")
    with killed_at_last(started(*command, env=env, stderr=subprocess.DEVNULL)) as serving:
        page = json.loads(serving.stdout.readline())["page"]
        found = {}
        for path in ("", "document.json?now"):
            with urlopen(page + path) as answer:
                found[f"page /{path}"] = answer.read()
        return found


@pytest.fixture
def env(server: S3Server, s3_client: S3Client) -> dict[str, str]:
    return {**os.environ, **ENVIRONMENT, "AWS_ENDPOINT_URL": server.endpoint}


@pytest.fixture
def shown(env: dict[str, str], tmp_path: Path) -> Iterator[Shown]:
    with forking(env, tmp_path, tmp_path / "output") as commands:
        yield Shown(commands)


def test_no_output_and_no_object_has_a_credential_or_a_key_on_a_page(
    shown: Shown,
    env: dict[str, str],
    tmp_path: Path,
    server: S3Server,
    behaviour: Behaviour,
    client: Any,
) -> None:
    url, log_url = server.url("store"), server.url("log")
    metrics_port = free_port()
    options = ("--log-store", log_url, "--parallelism", "2", "--metrics-port", str(metrics_port))
    options += ("--json", "--debug")
    moved = server.url("clone")

    job = "tests.process.jobs:wordcount"
    run = Run(tmp_path / "job", job, options, url, env, lambda: slots(server, client))
    (run.input / "words.txt").write_text(" ".join(KEYS) * 20 + "\n" + " ".join(KEYS) + "\n" * 5000)
    logging = ("--log-level", "debug", "--log-format", "json")
    # Into files: nobody reads while the commands below run, and a full pipe would hold the job up.
    with (
        (tmp_path / "out.txt").open("w") as out,
        (tmp_path / "err.txt").open("w") as err,
        killed_at_last(
            started(*logging, *run.command, env=run.environment, stdout=out, stderr=err)
        ) as process,
    ):
        wait_until(lambda: run.slots() > 4, process)
        pages = page_of(env, url)
        with urlopen(f"http://127.0.0.1:{metrics_port}/metrics") as answer:
            pages["metrics"] = answer.read()
        shown.run("report", url, "--output", "report.html")
        pages["report"] = (tmp_path / "report.html").read_bytes()
        shown.run("savepoint", url, "--name", "kept", "--json")
        shown.run("stop", url, "--savepoint", "halt", "--json")
        assert process.wait(timeout=60) == 0, (tmp_path / "err.txt").read_text()
    shown.texts["run"] = (tmp_path / "out.txt").read_bytes() + (tmp_path / "err.txt").read_bytes()

    shown.run("checkpoints", "list", url, "--json")
    shown.run("checkpoints", "show", url, "latest", "--json")
    shown.run("inspect", url, "--deep", "--json")
    shown.run("log", url, "--json")
    shown.run("gc", url, "--dry-run")
    shown.run("store", "check", url)
    shown.run("restore", url, "--to", "restored")
    shown.run("verify", url, "--engine", "local")
    shown.run("clone", f"{url}@kept", moved, "--json")
    shown.run("config", "show", "--json")
    shown.run("config", "explain")
    shown.run("spark", "conf", "--no-jar")

    behaviour.message = f"Bad token {TOKEN}, secret {SECRET}; ask http://me:{PASSWORD}@there"
    behaviour.error = lambda exchange: (400, "InvalidToken")
    shown.run("checkpoints", "list", url, "--debug", exit_code=1)
    shown.run("clone", f"{url}@latest", moved, "--debug", "--json", exit_code=1)
    again = ("run", "wordcount", "--input", str(run.input), "--store", url, "--debug", "--json")
    shown.run(*again, exit_code=1)
    assert b"InvalidToken: Bad token ***, secret ***" in shown.texts[" ".join(again)]
    assert b"Traceback" in shown.texts[" ".join(again)]
    behaviour.error = lambda exchange: None

    shown.texts |= pages | stored(server, client) | files(tmp_path)
    assert re.search(rb"wordcount", pages["metrics"]) and b"wordcount" in pages["report"]
    shown.check(SECRETS)
    shown.texts = pages
    shown.check(KEYS)
