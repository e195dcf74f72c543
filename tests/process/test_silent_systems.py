"""SIGTERM ends a process that waits for a system which takes all and answers nothing."""

import signal
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.process.harness import Run, killed_at_last, wait_until
from tests.support.postgres import query
from tests.support.silent import Between, between
from tests.wire.servers import S3Server
from tidelog.storage.config import S3Client

AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "here"}


@pytest.fixture
def line() -> Iterator[Between]:
    with between() as line:
        yield line


def address(kind: str, port: int) -> str:
    if kind in ("outbox", "postgres"):
        return f"host=127.0.0.1 port={port} user=tidelog sslmode=disable connect_timeout=3600"
    return f"http://127.0.0.1:{port}" if kind == "iceberg" else f"127.0.0.1:{port}"


def run_of(tmp_path: Path, kind: str, address: str, *options: str, store: str = "") -> Run:
    kind, _, client = kind.partition(" by ")
    env = {"TIDELOG_TEST_SYSTEM": f"{kind}: {address}"}
    if client:
        env["TIDELOG__STORAGE__S3__CLIENT"] = client
    if kind == "s3":
        env |= {**AWS, "AWS_ENDPOINT_URL": f"http://{address}"}
        store = "s3://tide/store"
    return Run(tmp_path, "tests.process.silent_jobs:job", options, store, env)


KINDS = [
    "outbox",
    "postgres",
    "iceberg",
    "kafka source",
    "kafka sink",
    "kafka sink, at least once",
    "s3",
    "s3 by s3fs",
]


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_starts_ends_at_sigterm_whatever_does_not_answer(
    kind: str, workers: str, line: Between, tmp_path: Path
) -> None:
    options = () if workers == "1" else ("--workers", workers, "--parallelism", "2")
    run = run_of(tmp_path, kind, address(kind, line.port), *options)
    with killed_at_last(run.start()) as process:
        wait_until(line.was_asked, process)
        process.send_signal(signal.SIGTERM)
        stopped = run.end(process)
    assert stopped.returncode == 130, stopped.stderr
    assert "Traceback" not in stopped.stderr


@pytest.mark.parametrize("kind", ["outbox", "postgres"])
def test_a_job_that_runs_ends_at_sigterm_once_its_database_is_silent(
    kind: str, conninfo: str, tmp_path: Path
) -> None:
    parts = dict(part.split("=", 1) for part in conninfo.split())
    if kind == "outbox":
        xid = "xid xid8 NOT NULL DEFAULT pg_current_xact_id()"
        query(conninfo, f"CREATE TABLE outbox (id int NOT NULL, {xid}, PRIMARY KEY (xid, id))")
    with between(Path(parts["host"], ".s.PGSQL.5432")) as line:
        at = f"{address(kind, line.port)} dbname={parts['dbname']}"
        check_ends_at_sigterm(run_of(tmp_path, kind, at), line)


def test_a_job_that_runs_ends_at_sigterm_once_its_store_is_silent(
    moto: S3Server, s3_client: S3Client, tmp_path: Path
) -> None:
    with between(("127.0.0.1", int(moto.endpoint.rpartition(":")[2]))) as line:
        run = run_of(tmp_path, "s3", address("s3", line.port))
        run.store = moto.url(tmp_path.name)
        run.slot_names = partial(slot_names, moto, tmp_path.name)
        check_ends_at_sigterm(run, line)


def slot_names(moto: S3Server, store: str) -> list[str]:
    with closing(moto.client()) as client:
        listed = client.list_objects_v2(Bucket=moto.bucket, Prefix=f"{store}/checkpoints/")
    return [each["Key"] for each in listed.get("Contents", ())]


def check_ends_at_sigterm(run: Run, line: Between) -> None:
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 3, process)
        line.fall_silent()
        wait_until(line.was_asked, process)
        process.send_signal(signal.SIGTERM)
        stopped = run.end(process)
    assert stopped.returncode == 130, stopped.stderr
    assert "Traceback" not in stopped.stderr
