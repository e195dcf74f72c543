"""How a query begins with a savepoint: its store is read until the first batch is committed, and
from then on what the query's own checkpoint has kept of it.
"""

from dataclasses import dataclass

from tidelog.spark.handover.document import Handover, QueryDirectory, without_rows
from tidelog.spark.handover.savepoint import SPLITS, StoredSavepoint, read_savepoint
from tidelog.storage.open import PLAIN, StoreAccess


@dataclass(frozen=True, slots=True)
class Origin:
    """A savepoint, and the query that begins with it."""

    savepoint: str
    """`URL@NAME`, `URL@N` or `URL@latest`."""
    checkpoint: str
    """The query's `checkpointLocation`."""
    access: StoreAccess = PLAIN


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a query begins with, or has begun with."""

    handover: Handover
    savepoint: StoredSavepoint | None
    """Where the rows are; None: they are in the query's own state."""


def begin(origin: Origin) -> Beginning:
    """What the query begins with, which its checkpoint keeps from now on.

    Raises ConfigError, RestoreError and what the stores raise.
    """
    directory = QueryDirectory(origin.checkpoint, origin.access)
    if directory.has_batch():
        return Beginning(directory.read(), None)
    savepoint = read_savepoint(origin.savepoint, origin.access)
    handover = handover_of(savepoint)
    directory.write(handover)
    return Beginning(handover, savepoint)


def handover_of(savepoint: StoredSavepoint) -> Handover:
    """What a query keeps of a savepoint; reads the positions of the sources."""
    checkpoint = savepoint.checkpoint
    splits: dict[str, dict[str, bytes]] = {}
    for operator in checkpoint.operators:
        if any(info.kind == SPLITS for info in operator.states):
            splits[operator.id] = savepoint.splits(operator.id)
    operators = tuple(map(without_rows, checkpoint.operators))
    return Handover(
        savepoint.url,
        checkpoint.slot,
        checkpoint.job,
        operators,
        splits,
        checkpoint_id=checkpoint.checkpoint_id,
    )
