"""`tidelog restore`: a checkpoint's state in a local directory."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import click
import msgspec

from tidelog.catalog.inventory import described, read_slots
from tidelog.catalog.locate import CheckpointName, find
from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.cli.exit_codes import EXIT_OK
from tidelog.cli.options import option
from tidelog.cli.output import Rows, Step, fields_of
from tidelog.cli.store.options import StoreCommand, checkpoint_option, on_store, selected
from tidelog.cli.values import size, span
from tidelog.cost.measured.fetching import fetch_of
from tidelog.cost.model.job import Settings
from tidelog.cost.model.restoring import first_record_s, restore_s
from tidelog.effects import Effects
from tidelog.errors import ConfigError, usable_path
from tidelog.state.recovery.base_table import reading_factory
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.state.recovery.restorer import Restorer
from tidelog.state.schema.decode import RowDecoder
from tidelog.table.port import Table
from tidelog.table.rocksdb_factory import RocksTableFactory

Format = Literal["rocksdb", "jsonl"]

_READ: Final = {"files": "table files", "segments": "log segments", "described": "descriptors"}
_SHOW_S: Final = 0.2
_COPY_ROWS: Final = 10_000


@click.command("restore")
@on_store
@checkpoint_option
@click.option("--operator", metavar="ID", help="This operator only.")
@click.option(
    "--to",
    "directory",
    type=click.Path(path_type=Path),
    help="A directory that is empty or does not exist.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Write nothing: say what a start from the checkpoint would read and how long it would "
    "take, to the first record and until its tables are whole.",
)
@option(
    "--format",
    "output_format",
    type=click.Choice(["rocksdb", "jsonl"]),
    default="rocksdb",
    help="A RocksDB database, or a file of decoded rows, per subtask.",
)
async def command(
    invocation: StoreCommand,
    checkpoint: CheckpointName,
    operator: str | None,
    directory: Path | None,
    dry_run: bool,
    output_format: Format,
) -> int:
    """Write the state of a checkpoint in the store at URL to a local directory.

    The store is only read. When something fails, nothing is left in the directory.
    """
    output, effects = invocation.output, invocation.effects
    if dry_run:
        if directory is not None or operator is not None:
            raise click.UsageError("--dry-run is about a start: give no --to and no --operator")
        return await _forecast(invocation, checkpoint)
    if directory is None:
        raise click.UsageError("give --to DIRECTORY, or --dry-run")
    entry = await find(invocation.store, checkpoint)
    chosen = selected(entry, operator)
    progress = RestoreProgress.of(effects.clock, (state for _, state in chosen))
    with _target(directory), output.progress("restoring") as step:
        showing = asyncio.ensure_future(_show(progress, step, effects))
        try:
            exporting = partial(_export, invocation, progress, directory, output_format)
            # One after the other, so that one table is open at a time.
            subtasks = [await exporting(*subtask_state) for subtask_state in chosen]
        finally:
            showing.cancel()
    output.show(
        {
            "url": invocation.store.url,
            "checkpoint": entry.slot,
            "format": output_format,
            "to": str(directory),
            "subtasks": subtasks,
        },
        Rows(subtasks, "operator", "subtask", "changes", "rows", "path"),
        f"checkpoint {entry.slot} restored",
    )
    return EXIT_OK


async def _forecast(invocation: StoreCommand, checkpoint: CheckpointName) -> int:
    """Say what a start from a checkpoint would read, and how long it would take."""
    store, settings = invocation.store, Settings()
    entry = await find(store, checkpoint)
    fetch = fetch_of(await described(store, await read_slots(store)), entry)
    link = settings.link
    first_s, whole_s = first_record_s(fetch, settings), restore_s(fetch, settings)
    fields = {
        "url": store.url,
        "checkpoint": entry.slot,
        "first_record_s": first_s,
        "restore_s": whole_s,
        "reads": fields_of(fetch),
        "bandwidth_bytes_per_s": link.bytes_per_s,
        "latency_s": link.latency_s,
    }
    invocation.output.show(
        fields,
        Rows(
            [(name, getattr(fetch, name)) for name in ("files", "segments", "described")],
            ("reads", lambda row: _READ[row[0]]),
            ("objects", lambda row: f"{row[1].count:,.0f}"),
            ("bytes", lambda row: size(int(row[1].bytes))),
        ),
        f"{fetch.changes:,.0f} changes to replay",
        f"begin at-once: first record after {span(first_s)}, tables whole after "
        f"about {span(whole_s)}",
        f"begin when-whole: first record after {span(whole_s)}",
        f"with {size(int(link.bytes_per_s))}/s and {span(link.latency_s)} a request",
    )
    return EXIT_OK


async def _show(progress: RestoreProgress, step: Step, effects: Effects) -> None:
    while True:
        step(int(progress.fraction * 1000), 1000)
        await effects.clock.sleep(_SHOW_S)


@contextmanager
def _target(directory: Path) -> Iterator[None]:
    """An empty directory to write to; emptied again when the block fails.

    Raises ConfigError when it is something else.
    """
    with usable_path(
        f"target {directory}",
        expected="a directory that can be written to, with room for the state",
        action="choose another --to",
    ):
        existed = directory.exists()
        if existed and not (directory.is_dir() and not any(directory.iterdir())):
            raise ConfigError(
                f"target {directory}",
                expected="a directory that is empty or does not exist",
                found="files" if directory.is_dir() else "a file",
                action="choose another --to",
            )
        try:
            directory.mkdir(parents=True, exist_ok=True)
            yield
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            if existed:
                with suppress(OSError):
                    directory.mkdir()
            raise


async def _export(
    invocation: StoreCommand,
    progress: RestoreProgress,
    directory: Path,
    output_format: Format,
    operator: OperatorState,
    state: SubtaskState,
) -> dict[str, Any]:
    """Restore and write one subtask; returns what was written."""
    # An id from a store must not lead out of the directory.
    name = f"{quote(operator.id, safe='')}-{state.index}"
    target = directory / (name if output_format == "rocksdb" else f"{name}.jsonl")
    in_place = output_format == "rocksdb" and state.table == "rocksdb"
    work = target if in_place else directory / f"{name}.table"
    factory = reading_factory(state.table, f"subtask {state.index}")
    restorer = Restorer(invocation.store, invocation.effects, factory, progress)
    restored = await restorer.restore(state, work, f"{operator.id}-{state.index}")
    run = invocation.effects.offload.run
    rows = None
    try:
        if in_place:
            # The tables have no write-ahead log: what is in memory goes to a file here.
            await run(restored.table.prepare_snapshot)
        elif output_format == "rocksdb":
            rows = await run(_copy, restored.table, target)
        else:
            rows = await run(_write_lines, restored.table, operator, state.index, target)
    finally:
        restored.table.close()
    if work != target:
        await run(shutil.rmtree, work, True)
    return {
        "operator": operator.id,
        "subtask": state.index,
        "changes": state.seqno,
        "rows": rows,
        "path": target.name,
    }


def _copy(table: Table, target: Path) -> int:
    """Copy a table into a RocksDB database; returns the number of rows."""
    copy, count = RocksTableFactory().create(target), 0
    try:
        for keys, values in table.columns(_COPY_ROWS):
            copy.load(keys, values)
            count += len(keys)
        copy.prepare_snapshot()
    finally:
        copy.close()
    return count


def _write_lines(table: Table, operator: OperatorState, subtask: int, target: Path) -> int:
    """Write a table's rows as JSON lines; returns their number."""
    decoder = RowDecoder(operator.states)
    encode = msgspec.json.Encoder().encode
    count = 0
    with target.open("wb") as file:
        for key, value in table.scan(b"", None):
            row = msgspec.to_builtins(decoder.decode(key, value))
            file.write(encode({"operator": operator.id, "subtask": subtask, **row}) + b"\n")
            count += 1
    return count
