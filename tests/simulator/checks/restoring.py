"""Restore equality: every completed checkpoint, restored beside the run, against its barrier.

Invariant: a restore reads the objects as they were when the slot was taken, and nothing else.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.simulator.checks.barriers import AtBarrier, Barriers, Rows
from tests.simulator.checks.checker import Completed
from tests.simulator.checks.violation import Property, Violation
from tests.simulator.machine.process import Process, effects_of
from tidelog import Savepoint, TidelogError
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.ids import SubtaskId
from tidelog.state.restore.progress import RestoreProgress
from tidelog.state.restore.restorer import Restorer
from tidelog.storage.memory import MemoryStore
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.port import Table, TableFactory
from tidelog.table.rocksdb import RocksTableFactory


async def check_restores(
    completed: Sequence[Completed], barriers: Barriers, directory: Path
) -> Violation | None:
    """Restore all checkpoints; the first difference found, oldest checkpoint first."""
    for checkpoint in completed:
        entry, store = checkpoint.entry, MemoryStore("sim://beside")
        for name, data in checkpoint.objects.items():
            await store.put(name, data)
        at_barrier = barriers.seen.get((entry.author.generation, entry.checkpoint_id), {})
        # A canonical savepoint numbers its rows anew.
        numbered = not (isinstance(entry, Savepoint) and entry.savepoint_format == "canonical")
        for operator, state in entry.subtasks():
            task = SubtaskId(operator.id, state.index)
            if state.finished and task not in at_barrier:
                continue  # It had exited before, and no barrier reached it any more.
            found = await _restored(store, state, directory / "beside", str(task))
            wrong = _difference(at_barrier.get(task), state, found, numbered=numbered)
            if wrong is not None:
                return Violation(Property.RESTORE, f"slot {entry.slot}, {task}: {wrong}")
    return None


def _difference(
    expected: AtBarrier | None, state: SubtaskState, found: Rows | TidelogError, *, numbered: bool
) -> str | None:
    if isinstance(found, TidelogError):
        return f"it cannot be restored: {found}"
    if expected is None:
        return "no barrier passed there"
    if numbered and state.seqno != expected.seqno:
        return f"sequence number {state.seqno}, at the barrier {expected.seqno}"
    keys = sorted(expected.rows.keys() | found.keys())
    wrong = [key for key in keys if expected.rows.get(key) != found.get(key)]
    if not wrong:
        return None
    key = wrong[0]
    return (
        f"{len(wrong)} of {len(keys)} rows differ, as {key!r}: at the barrier "
        f"{expected.rows.get(key)!r}, restored {found.get(key)!r}"
    )


async def _restored(
    store: MemoryStore, state: SubtaskState, directory: Path, what: str
) -> Rows | TidelogError:
    effects = effects_of(Process("beside", Random(0)))
    rocksdb = state.table == "rocksdb"
    factory: TableFactory = RocksTableFactory() if rocksdb else MemoryTableFactory()
    progress = RestoreProgress.of(effects.clock, [state])
    try:
        restorer = Restorer(store, effects, factory, progress)
        table: Table = (await restorer.restore(state, directory, what)).table
        try:
            return dict(table.scan(b"", None))
        finally:
            # Before its files go: a RocksDB that cannot flush as it closes waits a second.
            table.close()
    except TidelogError as error:
        return error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
