"""A process that commits to a sink and is killed (SIGKILL) at a chosen step of it."""

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from tests.support.iceberg import Lake
from tests.unit.connectors.sinks.job import context
from tidelog.connectors.files.sink import Files
from tidelog.connectors.iceberg import Iceberg
from tidelog.connectors.iceberg.staged import SinkDirectory
from tidelog.connectors.sql import Postgres, Sqlite
from tidelog.connectors.sql.staging import StagingWriter
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import SinkWriter

Phase = Literal["pre_commit", "commit"]
RECORDS = [f"record {n}" for n in range(3)]


def files_sink(root: Path) -> Files:
    """One file per record."""
    return Files(root / "out", "text", max_part_bytes=1)


def sqlite_sink(root: Path) -> Sqlite:
    return Sqlite(root / "out.db", "out", {"line": "TEXT"})


def postgres_sink(root: Path) -> Postgres:
    """How to connect is in a file."""
    return Postgres((root / "conninfo").read_text(), "out", {"line": "text"})


def iceberg_sink(root: Path) -> Iceberg:
    return Iceberg(Lake(root).catalog, "lake.out")


def write_files(root: Path, phase: Phase, step: int) -> None:
    """Dies at the given rename, open or removal of a file."""

    def trap(at_step: Callable[[], None]) -> None:
        def hook(event: str, _: tuple[Any, ...]) -> None:
            if event in ("os.rename", "os.remove", "open"):
                at_step()

        sys.addaudithook(hook)

    writer = files_sink(root).open(context())
    for record in RECORDS:
        writer.write([record])
    _run(writer, root, phase, step, trap)


def write_rows(root: Path, phase: Phase, step: int) -> None:
    """Dies before the given SQL statement."""

    def trap(at_step: Callable[[], None]) -> None:
        with writer._tables.transaction() as connection:
            pass
        connection.set_trace_callback(lambda statement: at_step())

    writer: StagingWriter = sqlite_sink(root).open(context())
    writer.write([(record,) for record in RECORDS])
    _run(writer, root, phase, step, trap)


def write_to_server(root: Path, phase: Phase, step: int) -> None:
    """Dies before the given SQL statement, BEGIN and COMMIT among them."""
    cursors = import_module("psycopg").RawCursor

    def trap(at_step: Callable[[], None]) -> None:
        execute, copy = cursors.execute, cursors.copy

        def execute_or_die(self: Any, *args: Any, **kwargs: Any) -> Any:
            at_step()
            return execute(self, *args, **kwargs)

        def copy_or_die(self: Any, *args: Any, **kwargs: Any) -> Any:
            at_step()
            return copy(self, *args, **kwargs)

        cursors.execute = execute_or_die
        cursors.copy = copy_or_die

    writer = postgres_sink(root).open(context())
    writer.write([(record,) for record in RECORDS])
    _run(writer, root, phase, step, trap)


def write_lake(root: Path, phase: Phase, step: int) -> None:
    """Dies before the given call into the catalogue or the table's files."""

    def trap(at_step: Callable[[], None]) -> None:
        for owner, names in [
            (import_module("pyiceberg.catalog.sql").SqlCatalog, ("load_table", "commit_table")),
            (import_module("pyiceberg.io.pyarrow").PyArrowFileIO, ("new_output", "new_input")),
            (SinkDirectory, ("announce", "settled")),
        ]:
            for name in names:
                setattr(owner, name, or_die(getattr(owner, name), at_step))

    def or_die(effect: Callable[..., Any], at_step: Callable[[], None]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            at_step()
            return effect(*args, **options)

        return called

    writer = iceberg_sink(root).open(context())
    writer.write([(record,) for record in RECORDS])
    _run(writer, root, phase, step, trap)


def _run(
    writer: SinkWriter,
    root: Path,
    phase: Phase,
    step: int,
    trap: Callable[[Callable[[], None]], None],
) -> None:
    left = step

    def at_step() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if phase == "pre_commit":
        trap(at_step)
    transaction = writer.pre_commit(CheckpointId(1))
    assert transaction is not None
    if phase == "commit":
        (root / "transaction").write_bytes(transaction)
        trap(at_step)
        writer.commit(transaction)
    os.kill(os.getpid(), signal.SIGKILL)
