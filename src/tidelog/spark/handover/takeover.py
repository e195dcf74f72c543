"""A job goes on in a Spark query: its store is fenced, and says where the job is.

Invariants: the query begins with the newest savepoint, with which the job was stopped; what that
had pre-committed is committed before the query writes; a start that was interrupted is repeated
with the same result. Nothing of the store is read once the first batch is committed.
"""

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.checkpoint.manifest import Author, Checkpoint, OperatorState, Savepoint, Start
from tidelog.checkpoint.sizes import layer_bytes
from tidelog.checkpoint.slots import SlotLog, list_slots, read_slot
from tidelog.checkpoint.startup import moved_away
from tidelog.effects import Effects
from tidelog.errors import ConfigError, RestoreError
from tidelog.events import Event
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import RestorePlan, Resumption, check_name
from tidelog.runtime.restore.plan import plan_restore
from tidelog.runtime.restore.settle import settle
from tidelog.spark.handover.begin import Origin, handover_of
from tidelog.spark.handover.document import Handover, QueryDirectory
from tidelog.spark.handover.positions import positions_of
from tidelog.spark.handover.savepoint import StoredSavepoint, event_time_of, read_savepoint
from tidelog.spark.job.sinks import Ledger, Predecessor
from tidelog.spark.job.sources import Positions, SplitPosition
from tidelog.spark.operators.layout import INITIAL_COLUMNS, InitialState, OperatorDescription
from tidelog.spark.source.parts import ReadSession, connected
from tidelog.state.event_time import UNKNOWN
from tidelog.storage.open import StoreAccess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

PARTITION_BYTES: Final = 128 << 20
"""Stored bytes of state, compressed, for which a state partition of the query is made."""


@dataclass(frozen=True, slots=True)
class JobHandover:
    """What a query takes over of a job, or has taken over."""

    handover: Handover
    savepoint: StoredSavepoint | None
    """None: the first batch of the query is committed."""

    @property
    def predecessor(self) -> Predecessor:
        """What the job's sinks know of it."""
        return Predecessor(self.handover.generation or 0, self.handover.checkpoint_id)

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

    def positions(self) -> dict[str, Positions]:
        """Where each source reads on, also in later starts of the query."""
        positions: dict[str, Positions] = {}
        for source, splits in self.handover.splits.items():
            positions[source] = {
                split.name: SplitPosition(split.is_ended, split.position)
                for split in positions_of(splits)
            }
        return positions

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


def take_over(job: Job, origin: Origin, allowed: Collection[str] = ()) -> JobHandover:
    """What the job's query begins with. The old job is fenced when this returns.

    `allowed` names state that may be dropped, as `JobConfig.allow_non_restored_state`. Raises
    RestoreError, StateSchemaError and others of a restore where the job does not go with the
    savepoint, before anything is fenced; FencedError, and what stores and sinks raise.
    """
    directory = QueryDirectory(origin.checkpoint, origin.access)
    if directory.has_batch():
        return JobHandover(directory.read(), None)
    savepoint = read_savepoint(origin.savepoint, origin.access)
    _require_stop(savepoint)
    with connected(savepoint.url, origin.access) as session:
        plan = _plan(job, savepoint, allowed, session.effects)
        author = session.run(_fence(savepoint, directory.url, session))
        # Not again when sinks know of a start of the query: it began after this.
        if not Ledger(origin.checkpoint, StoreAccess(origin.access.endpoint)).last_start():
            session.run(settle(job, plan, author, session.effects))
    Event.JOB_MOVED.log(logger, job=job.name, location=directory.url)
    handover = _restored(handover_of(savepoint), plan, author)
    directory.write(handover)
    return JobHandover(handover, savepoint)


def resumed(checkpoint: str) -> JobHandover | None:
    """What a query has taken over that starts again; None: it began without state of a job.

    Raises ConfigError where it has not taken over all: it would begin without.
    """
    directory = QueryDirectory(checkpoint)
    handover = directory.read_if_any()
    if handover is None or directory.has_batch():
        return None if handover is None else JobHandover(handover, None)
    raise ConfigError(
        f"query at {directory.url}",
        expected=f"the savepoint that it begins with, checkpoint {handover.checkpoint} of "
        f"{handover.store}: its first batch is not committed",
        found="a start without",
        action=f"start it with --from {handover.store}@{handover.checkpoint} (savepoint=)",
    )


def _require_stop(savepoint: StoredSavepoint) -> None:
    checkpoint = savepoint.checkpoint
    if not (isinstance(checkpoint, Savepoint) and checkpoint.stop):
        raise RestoreError(
            f"checkpoint {checkpoint.slot} of {savepoint.url}",
            expected="a savepoint with which the job was stopped, so that both do not go on",
            found="one after which the job went on",
            action="stop the job by `tidelog stop URL --savepoint NAME`, and name that savepoint",
        )


def _plan(
    job: Job, savepoint: StoredSavepoint, allowed: Collection[str], effects: Effects
) -> RestorePlan:
    """How the job would go on embedded; raises as a start of it would."""
    checkpoint = savepoint.checkpoint
    key_groups = max((operator.key_groups for operator in checkpoint.operators), default=1)
    config = JobConfig(key_groups=key_groups, allow_non_restored_state=tuple(allowed))
    resumption = Resumption(checkpoint, detached=True)
    check_name(job.name, resumption)
    plan = plan_restore(job, resumption, config, effects.clock)
    if migrated := sorted({*plan.migrated, *plan.migrations}):
        raise RestoreError(
            f"operators {', '.join(migrated)} of job {job.name!r}",
            expected="keys and values of the types that the savepoint has",
            found="a migration to other types, which only an embedded start makes",
            action="start the job once embedded, stop it by a savepoint, and move that",
        )
    for dropped in plan.dropped:
        Event.STATE_DROPPED.log(logger, job=job.name, dropped=dropped)
    return plan


async def _fence(savepoint: StoredSavepoint, location: str, session: ReadSession) -> Author:
    """Who the query is for the job's sinks; no start of the job goes on from now on.

    Raises RestoreError when the job has gone on since the savepoint, or moved somewhere else.
    """
    slot = savepoint.checkpoint.slot
    for later in await list_slots(session.store, slot):
        entry = await read_slot(session.store, later)
        if not (isinstance(entry, Start) and entry.moved_to):
            raise RestoreError(
                f"savepoint {slot} of {savepoint.url}",
                expected="the newest entry of the store",
                found=f"{later}, with which the job has started or gone on since",
                action="stop the job, and name the savepoint with which it stops",
            )
        if entry.moved_to != location:
            raise moved_away(entry)
        return entry.author
    slots = SlotLog(session.store, session.effects)
    take_over = await slots.take_over(savepoint.checkpoint.job, moved_to=location)
    return Author(take_over.generation, take_over.attempt)


def _restored(handover: Handover, plan: RestorePlan, author: Author) -> Handover:
    """Without what the plan drops."""
    operators = [operator for operator in handover.operators if operator.id in plan.operators]
    splits: dict[str, Mapping[str, bytes]] = {}
    for source, positions in handover.splits.items():
        if source in plan.operators and plan.operators[source].states:
            splits[source] = positions
    return msgspec.structs.replace(
        handover, operators=tuple(operators), splits=splits, generation=author.generation
    )
