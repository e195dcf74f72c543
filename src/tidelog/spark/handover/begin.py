"""How a query begins with a savepoint, whose store it reads until its first batch is committed."""

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.checkpoint.manifest import Checkpoint, OperatorState
from tidelog.checkpoint.sizes import layer_bytes
from tidelog.events import Event
from tidelog.spark.handover.document import HANDOVER, Handover, QueryDirectory, without_rows
from tidelog.spark.handover.savepoint import SPLITS, StoredSavepoint, event_time_of, read_savepoint
from tidelog.spark.operators.layout import INITIAL_COLUMNS, InitialState, OperatorDescription
from tidelog.state.event_time import UNKNOWN
from tidelog.storage.open import PLAIN, StoreAccess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

PARTITION_BYTES: Final = 128 << 20
"""Stored bytes of state, compressed, for which a state partition of the query is made."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A savepoint, and the query that begins with it."""

    savepoint: str
    """`URL@NAME`, `URL@N` or `URL@latest`."""
    checkpoint: str
    """The query's `checkpointLocation`."""
    access: StoreAccess = PLAIN

    @property
    def directory(self) -> QueryDirectory:
        return QueryDirectory(self.checkpoint, self.access)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a query begins with, or has begun with."""

    handover: Handover
    savepoint: StoredSavepoint | None
    """Where the rows are; None: a batch is committed, and they are in the query's own state."""

    def initial(self, spark: "SparkSession") -> dict[str, InitialState]:
        """What each operator begins with; nothing once a batch is committed."""
        if self.savepoint is None:
            return {}
        states: dict[str, InitialState] = {}
        for operator in self.handover.operators:
            if operator.id not in self.handover.splits:
                rows = self.savepoint.frame(spark, operator.id, *INITIAL_COLUMNS)
                states[operator.id] = InitialState(described(operator), rows)
        return states

    def state_partitions(self, cores: int) -> int | None:
        """How many partitions the state needs, which a query keeps for ever; None: it has them.

        Key groups are not divided, so more of them than key groups would be empty.
        """
        if self.savepoint is None:
            return None
        checkpoint = self.savepoint.checkpoint
        groups = max((operator.key_groups for operator in checkpoint.operators), default=1)
        return min(groups, max(cores, -(-state_bytes(checkpoint) // PARTITION_BYTES)))


def state_bytes(checkpoint: Checkpoint) -> int:
    """Stored bytes of the operator with most state."""
    sizes: Counter[str] = Counter()
    for operator, layer in checkpoint.layers():
        sizes[operator.id] += layer_bytes(layer)
    return max(sizes.values(), default=0)


def described(operator: OperatorState) -> OperatorDescription:
    """An operator of a checkpoint as `transformWithState` gets it."""
    event_time = event_time_of(operator)
    return OperatorDescription(
        operator=operator.id,
        key_groups=operator.key_groups,
        states=operator.states,
        key_types=operator.key_types,
        meaning=operator.meaning,
        watermark=None if event_time.watermark == UNKNOWN else event_time.watermark,
        ahead=event_time.stored(),
        seqno=max((subtask.seqno for subtask in operator.subtasks), default=0),
    )


def begin(origin: Origin) -> Beginning:
    """What the query begins with, which its checkpoint keeps from now on.

    Raises ConfigError, RestoreError and what the stores raise.
    """
    directory = origin.directory
    if directory.batches():
        return Beginning(directory.required_handover(), None)
    savepoint = read_savepoint(origin.savepoint, origin.access)
    handover = handover_of(savepoint)
    directory.put(HANDOVER, handover)
    return Beginning(handover, savepoint)


def handover_of(savepoint: StoredSavepoint) -> Handover:
    """What a query keeps of a savepoint; reads the positions of the sources."""
    checkpoint = savepoint.checkpoint
    if savepoint.access.encryption_key is not None:
        Event.STATE_NOT_ENCRYPTED.log(logger, job=checkpoint.job)
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
