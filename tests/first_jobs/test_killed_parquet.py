"""Rows of Parquet files in an SQLite table, each once, through two kills and other parallelisms."""

import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.first_jobs.killed import finish, kill_at, last_slot, start
from tests.support.depth import only_in_depth

PROGRAM = """
from tidelog import Job, ParquetFiles, Sqlite

job = Job("copy")
rows = job.source(ParquetFiles("in/", columns=["n", "price"], batch_rows=500))
rows.map(lambda row: (row.n, str(row.price))).sink(
    Sqlite("out.db", "rows", {"n": "integer", "price": "text"})
)
"""
FILES, ROWS = 12, 4_000


@only_in_depth("test_killed_iceberg.py reads Parquet in killed jobs")
def test_every_row_is_there_once_after_kills_and_rescales(tmp_path: Path) -> None:
    (tmp_path / "copy_rows.py").write_text(PROGRAM)
    (tmp_path / "in").mkdir()
    expected = []
    for file in range(FILES):
        numbers = range(file * ROWS, (file + 1) * ROWS)
        prices = [f"{n}.25" for n in numbers]
        columns = {"n": numbers, "price": pa.array(prices).cast(pa.decimal128(9, 2)), "x": prices}
        pq.write_table(pa.table(columns), tmp_path / f"in/{file}.parquet", row_group_size=1500)
        expected += zip(numbers, prices, strict=True)
    checkpoints = tmp_path / "store" / "checkpoints"
    for parallelism in (2, 3, 1):
        process = start(tmp_path, "copy_rows:job", "--parallelism", str(parallelism))
        kill_at(process, checkpoints, last_slot(checkpoints) + 3)
    finish(start(tmp_path, "copy_rows:job", "--parallelism", "2"))
    with sqlite3.connect(tmp_path / "out.db") as database:
        found = database.execute("SELECT n, price FROM rows ORDER BY n").fetchall()
        left = database.execute("SELECT count(*) FROM _tidelog_pending").fetchone()
    assert (found, left) == (expected, (0,))
