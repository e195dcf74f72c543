"""Local recovery: copies in front of the store, opened when a job starts.

Invariant: of what lies in the directory only copies that a retained checkpoint needs are left, so
the disk is bounded by retention also when another machine ran the job in between.
"""

from tidelog.checkpoint.local_first import LocalFirstStore
from tidelog.checkpoint.retention import checkpoint_objects
from tidelog.checkpoint.startup import History
from tidelog.effects import Effects
from tidelog.runtime.config import JobConfig
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore


async def with_local_copies(
    store: ObjectStore, config: JobConfig, effects: Effects, history: History, ledger: Ledger
) -> ObjectStore:
    """The store itself when local recovery is off, else the store behind its copies.

    Raises StorageError and its kinds when the directory cannot be used at all.
    """
    if config.local_recovery is None:
        return store
    limit = config.local_recovery_bytes
    copies = await LocalFirstStore.open(store, config.local_recovery, limit, effects)
    needed = set[str]().union(*map(checkpoint_objects, history.checkpoints))
    await copies.prune(ledger.closure(needed))
    return copies
