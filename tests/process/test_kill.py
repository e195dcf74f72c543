"""A job that is killed at any moment, and started again, ends as if nothing had happened."""

import asyncio
import os
import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.process import harness
from tests.process.harness import Run
from tests.process.readers import Read, Watcher
from tests.support.cli import tidelog
from tests.support.depth import more_in_depth, one_by_one, only_in_depth
from tests.support.postgres import Server, query
from tests.unit.storage.conformance import names
from tests.wire.servers import CloudServer, S3Server
from tidelog import open_store
from tidelog.connectors.sql.postgres import TableNames
from tidelog.examples.sessions import event
from tidelog.storage.config import S3Client

SEED = int(os.environ.get("TIDELOG_TEST_SEED", "20260101"))
KILLS, LAST_KILLS = more_in_depth((1, 1), (6, 2))
"""Kills while a job still has input to read, and the most that follow while it ends."""
LINES = more_in_depth(700, 2_500)
EVENTS = more_in_depth(1_500, 4_000)


def write_words(run: Run, lines: int, files: int = 3) -> Counter[str]:
    """Numbered lines of words, some bytes of them broken; returns what Counter makes of them."""
    rng = random.Random(lines)
    counts: Counter[str] = Counter()
    for file in range(files):
        data = b""
        for line in range(lines):
            words = [f"w{min(rng.randrange(400), rng.randrange(400))}".encode() for _ in range(5)]
            data += b"%d-%d %s \xff\xc3 caf\xc3\xa9\n" % (file, line, b" ".join(words))
        (run.input / f"{file}.txt").write_bytes(data)
        counts.update(data.decode("utf-8", "replace").split())
    return counts


def lines_of(run: Run) -> list[str]:
    """All lines of the input, sorted."""
    texts = [path.read_text("utf-8", "replace") for path in run.input.iterdir()]
    return sorted(line for text in texts for line in text.split("\n") if line)


def killed_often(run: Run, look: Callable[[], object]) -> None:
    """Let a job run to its end, killing it many times on the way."""
    rng = random.Random(f"{SEED} {run.job} {run.options}")
    print(f"seed {SEED}:", *run.command)
    for _ in range(KILLS):
        harness.kill_before_release(run, rng, look)
    run.release()
    print(harness.kill_until_finished(run, rng, look, most=LAST_KILLS), "more kills")


def options(*, parallelism: int, changelog: bool, mode: str, workers: int = 1) -> tuple[str, ...]:
    log = "--changelog" if changelog else "--no-changelog"
    several = ("--workers", str(workers)) if workers > 1 else ()
    return ("--parallelism", str(parallelism), log, "--mode", mode, *several)


@one_by_one(
    mode=["exactly-once", "at-least-once"],
    changelog={"changelog": True, "no-changelog": False},
    parallelism=[1, 3],
    workers=[1, 3],
)
def test_a_killed_word_count_counts_every_word_right(
    tmp_path: Path, parallelism: int, changelog: bool, mode: str, workers: int
) -> None:
    chosen = options(parallelism=parallelism, changelog=changelog, mode=mode, workers=workers)
    run = Run(tmp_path, "tests.process.jobs:wordcount", chosen)
    expected = write_words(run, LINES)
    killed_often(run, run.counts)
    counts = run.counts()
    if mode == "exactly-once" or parallelism == 1:  # one channel needs no alignment
        assert counts == expected
    else:
        assert counts.keys() == expected.keys()
        assert all(counts[word] >= expected[word] for word in expected)


def test_a_word_count_that_is_killed_before_its_state_is_here_counts_every_word_right(
    tmp_path: Path,
) -> None:
    early = ("--restore-begin", "at-once", "--restore-whole-bytes", "0", "--table", "rocksdb")
    often = ("--materialize-interval", "200ms")
    run = Run(tmp_path, "tests.process.jobs:wordcount", ("--parallelism", "2", *early, *often))
    expected = write_words(run, LINES)
    killed_often(run, run.counts)
    assert run.counts() == expected


def test_a_killed_word_count_with_its_log_in_another_store_counts_every_word_right(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    # So that the log is long at the end as well.
    kept = ("--no-materialize-enabled", "--upload-inline-bytes", "0")
    run = Run(tmp_path, "tests.process.jobs:wordcount", ("--log-store", str(log), *kept))
    expected = write_words(run, LINES)
    killed_often(run, lambda: None)
    assert run.counts() == expected
    assert [*log.glob("segments/*.seg")] and not Path(run.store, "segments").exists()
    assert tidelog("inspect", run.store, "--deep").exit_code == 0
    moved = ("--log-store", str(tmp_path / "log-2"))
    cloned = tidelog("clone", f"{run.store}@latest", str(tmp_path / "store-2"), *moved)
    assert cloned.exit_code == 0, cloned.stderr
    assert tidelog("verify", str(tmp_path / "store-2"), "--engine", "local").exit_code == 0
    assert not (tmp_path / "store-2" / "segments").exists()


@pytest.mark.parametrize("parallelism", more_in_depth([3], [1, 3]))
# With a changelog it is tables that lines are copied into, below.
@pytest.mark.parametrize("changelog", more_in_depth([False], [False, True]))
@pytest.mark.parametrize("workers", [1, 3])
def test_a_killed_copy_shows_no_line_twice_at_any_time_and_all_in_the_end(
    tmp_path: Path, parallelism: int, changelog: bool, workers: int
) -> None:
    kept = {"parallelism": parallelism, "changelog": changelog, "workers": workers}
    chosen = options(mode="exactly-once", **kept)
    run = Run(tmp_path, "tests.process.jobs:copy", chosen)
    write_words(run, LINES)

    def no_line_occurs_twice() -> None:
        lines = run.lines()
        assert len(lines) == len(set(lines))

    killed_often(run, no_line_occurs_twice)
    assert sorted(run.lines()) == lines_of(run)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_killed_job_joins_no_line_before_its_table_is_loaded(
    tmp_path: Path, workers: int
) -> None:
    chosen = options(parallelism=3, changelog=True, mode="exactly-once", workers=workers)
    run = Run(tmp_path, "tests.process.jobs:names", chosen)
    write_words(run, LINES)

    def nothing_comes_before_the_table_is_released() -> None:
        assert run.released.exists() or run.lines() == []

    killed_often(run, nothing_comes_before_the_table_is_released)
    texts = [(run.input / f"{n}.txt").read_text("utf-8", "replace") for n in range(3)]
    table, *others = (list(filter(None, text.split("\n"))) for text in texts)
    expected = [
        f"{line} | {row}" for lines in others for line, row in zip(lines, table, strict=True)
    ]
    assert sorted(run.lines()) == sorted(expected)


@pytest.mark.parametrize("parallelism", more_in_depth([3], [1, 3]))
def test_a_reader_of_an_sqlite_table_sees_every_line_once_and_none_out_of_turn(
    tmp_path: Path, parallelism: int
) -> None:
    database = tmp_path / "lines.db"

    def read() -> list[str]:
        if not database.exists():
            return []
        with closing(sqlite3.connect(database, timeout=60)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name='lines'").fetchone():
                return []
            return [line for (line,) in connection.execute("SELECT line FROM lines")]

    copied_under_the_eyes_of_a_reader(tmp_path, "copy_to_sqlite", str(database), read, parallelism)


@pytest.mark.parametrize("parallelism", more_in_depth([1], [1, 3]))
def test_a_reader_of_a_postgres_table_sees_every_line_once_and_none_out_of_turn(
    tmp_path: Path, postgres_server: Server, parallelism: int
) -> None:
    database = postgres_server.database()

    def read() -> list[str]:
        exists = "SELECT 1 FROM pg_tables WHERE tablename = 'lines'"
        if not query(database, exists):
            return []
        return [line for (line,) in query(database, "SELECT line FROM lines")]

    copied_under_the_eyes_of_a_reader(tmp_path, "copy_to_postgres", database, read, parallelism)
    pending = TableNames("lines", {"line": "text"}).pending
    assert query(database, f"SELECT count(*) FROM {pending}") == [(0,)]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_table_of_counts_never_goes_back_and_holds_all_of_them_in_the_end(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        database = str(tmp_path / "counts.db")
    else:
        database = request.getfixturevalue("postgres_server").database()
    chosen = options(parallelism=3, changelog=True, mode="exactly-once")
    env = {"TIDELOG_TEST_DATABASE": database}
    run = Run(tmp_path, f"tests.process.jobs:counts_to_{kind}", chosen, env=env)
    expected = write_words(run, LINES)
    seen: dict[str, int] = {}

    def ask(sql: str) -> list[Any]:
        if kind == "postgres":
            return query(database, sql)
        with closing(sqlite3.connect(database, timeout=60)) as connection:
            return connection.execute(sql).fetchall()

    catalogue = {"sqlite": "sqlite_master WHERE name", "postgres": "pg_tables WHERE tablename"}

    def read() -> dict[str, int]:
        exists = ask(f"SELECT 1 FROM {catalogue[kind]} = 'counts'")
        return dict(ask("SELECT word, n FROM counts")) if exists else {}

    def no_count_goes_back() -> None:
        counts = read()
        assert all(counts[word] >= seen[word] for word in seen)
        seen.update(counts)

    killed_often(run, no_count_goes_back)
    assert seen and read() == expected


def copied_under_the_eyes_of_a_reader(
    directory: Path, job: str, database: str, read: Read, parallelism: int
) -> None:
    """Copy files into a table with many kills; subtasks commit one by one, so one keeps order."""
    chosen = options(parallelism=parallelism, changelog=True, mode="exactly-once")
    env = {"TIDELOG_TEST_DATABASE": database}
    run = Run(directory, f"tests.process.jobs:{job}", chosen, env=env)
    write_words(run, LINES)
    watcher = Watcher(read, in_order=parallelism == 1)
    with watcher.looking():
        killed_often(run, watcher.check)
    assert sorted(read()) == lines_of(run)
    print(watcher.looks, "looks saw", watcher.changes, "changes")
    assert watcher.changes > 2


@pytest.mark.parametrize(
    ("parallelism", "spared"), more_in_depth([(3, 1)], [(1, 0), (3, 0), (3, 1)])
)
def test_the_last_lines_are_committed_once_though_a_kill_came_between_checkpoint_and_commit(
    tmp_path: Path, parallelism: int, spared: int
) -> None:
    """Of the commits that the final checkpoint calls for, `spared` succeed before the kill."""
    chosen = options(parallelism=parallelism, changelog=True, mode="exactly-once")
    env = {
        "TIDELOG_TEST_STORE": str(tmp_path / "store"),
        "TIDELOG_TEST_SPARED_COMMITS": str(spared),
    }
    alone = ("--checkpoint-interval", "1h")
    run = Run(tmp_path, "tests.process.jobs:mortal", (*chosen, *alone), env=env)
    write_words(run, 60)
    run.release()
    assert run.end(run.start()).returncode == -signal.SIGKILL
    assert len(run.lines()) < len(lines_of(run)), "something was left to commit"
    run.finish_here()
    assert sorted(run.lines()) == lines_of(run)


FIRED_ONCE = {"sessions": ("user", "number"), "windows": ("user", "start_ms")}
"""What tells the records of a job apart."""


@one_by_one(job=list(FIRED_ONCE), table=["rocksdb", "memory"], parallelism=[1, 3])
def test_killed_timers_fire_as_undisturbed_ones_do(
    tmp_path: Path, job: str, table: str, parallelism: int
) -> None:
    chosen = (
        *options(parallelism=parallelism, changelog=True, mode="exactly-once"),
        "--table",
        table,
    )
    run = Run(tmp_path / "killed", f"tests.process.jobs:{job}", chosen)
    write_events(run)

    def nothing_fired_twice() -> None:
        fired = [tuple(map(record.get, FIRED_ONCE[job])) for record in run.records()]
        assert len(fired) == len(set(fired))

    killed_often(run, nothing_fired_twice)
    nothing_fired_twice()
    calm = Run(tmp_path / "calm", run.job, chosen)
    write_events(calm)
    calm.release()
    calm.finish_here()
    assert sorted(run.lines()) == sorted(calm.lines())
    assert len(run.lines()) > 100


@pytest.mark.parametrize("changelog", more_in_depth([True], [True, False]))
@pytest.mark.parametrize("workers", more_in_depth([2], [1, 2]))
def test_a_word_count_killed_with_local_copies_counts_every_word_right(
    tmp_path: Path, changelog: bool, workers: int
) -> None:
    """Also when, between two starts, some of the copies are damaged or gone."""
    kept, rng = tmp_path / "kept", random.Random(SEED)
    chosen = options(parallelism=2, changelog=changelog, mode="exactly-once")
    chosen = (*chosen, "--local-recovery", str(kept), "--workers", str(workers))
    run = Run(tmp_path, "tests.process.jobs:wordcount", chosen)
    expected = write_words(run, LINES)

    def harm() -> None:
        for copy in sorted(path for path in kept.rglob("*") if path.is_file()):
            with suppress(FileNotFoundError):  # the job that still runs may remove it
                match rng.randrange(4):
                    case 0:
                        copy.unlink()
                    case 1:
                        # Not in place: the file may be one with a live table's.
                        data = copy.read_bytes()
                        copy.unlink()
                        copy.write_bytes(data[: len(data) // 2])

    killed_often(run, harm)
    assert run.counts() == expected


def write_events(run: Run) -> None:
    events = [msgspec.json.encode(event(number).asDict()) for number in range(EVENTS)]
    (run.input / "events.jsonl").write_bytes(b"\n".join(events) + b"\n")


def killed_in_a_cloud(
    directory: Path, url: str, env: Mapping[str, str], slot_names: Callable[[], Iterable[str]]
) -> None:
    chosen = options(parallelism=1, changelog=True, mode="exactly-once")
    job = "tests.process.jobs:wordcount"
    run = Run(directory, job, chosen, store=url, env=env, slot_names=slot_names)
    expected = write_words(run, LINES)
    killed_often(run, lambda: None)
    assert run.counts() == expected


def test_a_word_count_killed_over_s3_counts_every_word_right(
    tmp_path: Path, moto: S3Server, s3_client: S3Client
) -> None:
    prefix = f"killed-{s3_client}"
    client = moto.client()

    def slot_names() -> list[str]:
        listed = client.list_objects_v2(Bucket=moto.bucket, Prefix=f"{prefix}/checkpoints/")
        return [entry["Key"] for entry in listed.get("Contents", ())]

    killed_in_a_cloud(tmp_path, moto.url(prefix), moto.env, slot_names)


@only_in_depth("jobs are killed over S3, and test_conforms tries what these clouds do")
@pytest.mark.parametrize("server", ["fake_gcs", "azurite"])
def test_a_word_count_killed_over_another_cloud_counts_every_word_right(
    tmp_path: Path, server: str, request: pytest.FixtureRequest
) -> None:
    cloud: CloudServer = request.getfixturevalue(server)

    async def listed() -> list[str]:
        store = open_store(cloud.url("killed"), options=cloud.options)
        try:
            return await names(store, "checkpoints/")
        finally:
            await store.close()

    killed_in_a_cloud(tmp_path, cloud.url("killed"), cloud.env, lambda: asyncio.run(listed()))
