"""A process killed while it commits: its successor finds every record once."""

import multiprocessing
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.depth import only_in_depth
from tests.support.iceberg import Lake
from tests.support.postgres import query
from tests.unit.connectors.sinks.job import context
from tests.unit.connectors.sinks.killed import (
    RECORDS,
    Phase,
    files_sink,
    iceberg_sink,
    postgres_sink,
    sqlite_sink,
    write_files,
    write_lake,
    write_rows,
    write_to_server,
)
from tidelog.connectors.sql.postgres import TableNames


def run_killed(write: Callable[[Path, Phase, int], None], root: Path, phase: Phase, n: int) -> None:
    process = multiprocessing.get_context("spawn").Process(target=write, args=(root, phase, n))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def files_shown(root: Path) -> list[str]:
    return [path.read_text().strip() for path in sorted((root / "out").glob("part-*"))]


def rows_shown(root: Path) -> list[str]:
    with closing(sqlite3.connect(root / "out.db")) as connection:
        return [line for (line,) in connection.execute("SELECT line FROM out ORDER BY rowid")]


@pytest.mark.parametrize("step", range(5))
def test_files_of_a_killed_commit_are_all_published_by_the_successor(
    step: int, tmp_path: Path
) -> None:
    run_killed(write_files, tmp_path, "commit", step)
    assert files_shown(tmp_path) == RECORDS[:step]
    files_sink(tmp_path).open(context(2)).recover([(tmp_path / "transaction").read_bytes()])
    assert files_shown(tmp_path) == RECORDS
    assert list((tmp_path / "out" / ".tidelog").iterdir()) == []


@pytest.mark.parametrize("step", range(2))
def test_files_of_a_killed_pre_commit_are_removed_by_the_successor(
    step: int, tmp_path: Path
) -> None:
    run_killed(write_files, tmp_path, "pre_commit", step)
    assert len(list((tmp_path / "out" / ".tidelog").iterdir())) == len(RECORDS)
    files_sink(tmp_path).open(context(2)).recover([])
    assert files_shown(tmp_path) == []
    assert list((tmp_path / "out" / ".tidelog").iterdir()) == []


@pytest.mark.parametrize(("step", "moved"), [(0, False), (4, False), (8, False), (10, True)])
def test_rows_of_a_killed_commit_are_moved_once(step: int, moved: bool, tmp_path: Path) -> None:
    run_killed(write_rows, tmp_path, "commit", step)
    assert rows_shown(tmp_path) == (RECORDS if moved else [])
    sqlite_sink(tmp_path).open(context(2)).recover([(tmp_path / "transaction").read_bytes()])
    assert rows_shown(tmp_path) == RECORDS


@pytest.mark.parametrize("step", [2, 4, 5])
def test_rows_of_a_killed_pre_commit_are_removed_by_the_successor(
    step: int, tmp_path: Path
) -> None:
    run_killed(write_rows, tmp_path, "pre_commit", step)
    sqlite_sink(tmp_path).open(context(2)).recover([])
    assert rows_shown(tmp_path) == []
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        assert connection.execute("SELECT * FROM _tidelog_pending").fetchall() == []


# BEGIN, fence, what is committed, move, record, COMMIT; step 6 is behind all of them.
@pytest.mark.parametrize("step", range(7))
def test_rows_of_a_killed_commit_on_a_server_are_moved_once(
    step: int, tmp_path: Path, conninfo: str
) -> None:
    (tmp_path / "conninfo").write_text(conninfo)
    run_killed(write_to_server, tmp_path, "commit", step)
    assert server_shown(conninfo) == (RECORDS if step == 6 else [])
    transaction = (tmp_path / "transaction").read_bytes()
    postgres_sink(tmp_path).open(context(2)).recover([transaction])
    assert server_shown(conninfo) == RECORDS
    postgres_sink(tmp_path).open(context(3)).recover([transaction])
    assert server_shown(conninfo) == RECORDS


# BEGIN, fence, COPY, COMMIT; step 4 is behind all of them.
@pytest.mark.parametrize("step", range(5))
def test_rows_of_a_killed_pre_commit_on_a_server_are_removed_by_the_successor(
    step: int, tmp_path: Path, conninfo: str
) -> None:
    (tmp_path / "conninfo").write_text(conninfo)
    run_killed(write_to_server, tmp_path, "pre_commit", step)
    assert server_staged(conninfo) == (len(RECORDS) if step == 4 else 0)
    postgres_sink(tmp_path).open(context(2)).recover([])
    assert (server_shown(conninfo), server_staged(conninfo)) == ([], 0)


def server_shown(conninfo: str) -> list[str]:
    return [line for (line,) in query(conninfo, "SELECT line FROM out ORDER BY ctid")]


def server_staged(conninfo: str) -> int:
    pending = TableNames("out", {"line": "text"}).pending
    return int(query(conninfo, f"SELECT count(*) FROM {pending}")[0][0])


# Load (2), manifest, manifest list (2), commit, load (2), metadata, settle; then all is done.
@only_in_depth("test_killed_iceberg.py kills jobs that commit")
@pytest.mark.parametrize("step", range(11))
def test_files_of_a_killed_commit_are_in_an_iceberg_table_once(step: int, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create("lake.out", line="string")
    run_killed(write_lake, tmp_path, "commit", step)
    assert lake_shown(lake) == (RECORDS if step >= 9 else [])
    transaction = (tmp_path / "transaction").read_bytes()
    for generation in (2, 3):
        iceberg_sink(tmp_path).open(context(generation)).recover([transaction])
        assert lake_shown(lake) == RECORDS
        assert (lake.announced("lake.out"), lake.unreferenced("lake.out")) == ([], set())


# Load (2), announce, write; step 4 is behind all of them.
@only_in_depth("test_every_call_fails.py has failures at these calls")
@pytest.mark.parametrize("step", range(5))
def test_files_of_a_killed_pre_commit_are_removed_by_the_successor_from_an_iceberg_table(
    step: int, tmp_path: Path
) -> None:
    lake = Lake(tmp_path)
    lake.create("lake.out", line="string")
    run_killed(write_lake, tmp_path, "pre_commit", step)
    assert len(lake.announced("lake.out")) == (step >= 3)
    assert len(lake.unreferenced("lake.out")) == (step == 4)
    iceberg_sink(tmp_path).open(context(2)).recover([])
    assert (lake_shown(lake), lake.announced("lake.out")) == ([], [])
    assert lake.unreferenced("lake.out") == set()


def lake_shown(lake: Lake) -> list[str]:
    return sorted(row["line"] for row in lake.rows("lake.out"))
