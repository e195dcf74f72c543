"""A process that commits to a sink and is killed (SIGKILL) at a chosen step of it."""

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from tests.unit.connectors.sinks.job import context
from tests.unit.connectors.sinks.outputs import output_in
from tidelog.connectors.iceberg.staged import SinkDirectory
from tidelog.ids import CheckpointId

Phase = Literal["pre_commit", "commit"]
NUMBERS = range(12)


def write(kind: str, root: Path, conninfo: str, phase: Phase, step: int) -> None:
    """Write, pre-commit and commit the numbers; die before a step of the phase."""
    left = step

    def at_step() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    writer: Any = output_in(kind, root, conninfo).sink().open(context())
    for number in NUMBERS:
        writer.write([(number,)])
    if phase == "pre_commit":
        TRAPS[kind](writer, at_step)
    transaction = writer.pre_commit(CheckpointId(1))
    assert isinstance(transaction, bytes)
    if phase == "commit":
        (root / "transaction").write_bytes(transaction)
        TRAPS[kind](writer, at_step)
        writer.commit(transaction)
    os.kill(os.getpid(), signal.SIGKILL)


def at_files(writer: Any, at_step: Callable[[], None]) -> None:
    """A step is a rename, open or removal of a file."""

    def hook(event: str, _: tuple[Any, ...]) -> None:
        if event in ("os.rename", "os.remove", "open"):
            at_step()

    sys.addaudithook(hook)


def at_statements(writer: Any, at_step: Callable[[], None]) -> None:
    """A step is a statement of SQLite."""
    with writer._tables.transaction() as connection:
        pass
    connection.set_trace_callback(lambda statement: at_step())


def at_calls(*owners: tuple[Any, tuple[str, ...]]) -> Callable[[Any, Callable[[], None]], None]:
    """A step is a call of one of these methods."""

    def or_die(effect: Callable[..., Any], at_step: Callable[[], None]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            at_step()
            return effect(*args, **options)

        return called

    def trap(writer: Any, at_step: Callable[[], None]) -> None:
        for owner, names in owners:
            for name in names:
                setattr(owner, name, or_die(getattr(owner, name), at_step))

    return trap


def at_server(writer: Any, at_step: Callable[[], None]) -> None:
    """A step is a statement, BEGIN and COMMIT among them."""
    at_calls((import_module("psycopg").RawCursor, ("execute", "copy")))(writer, at_step)


def at_lake(writer: Any, at_step: Callable[[], None]) -> None:
    """A step is a call into the catalogue or the table's files."""
    catalog = import_module("pyiceberg.catalog.sql").SqlCatalog
    files = import_module("pyiceberg.io.pyarrow").PyArrowFileIO
    at_calls(
        (catalog, ("load_table", "commit_table")),
        (files, ("new_output", "new_input")),
        (SinkDirectory, ("announce", "settled")),
    )(writer, at_step)


TRAPS = {"files": at_files, "sqlite": at_statements, "postgres": at_server, "iceberg": at_lake}
