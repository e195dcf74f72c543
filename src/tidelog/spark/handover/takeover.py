"""A job goes on in a Spark query: its store is fenced, and says where the job is.

Invariants: the query begins with the newest savepoint, with which the job was stopped; what that
had pre-committed is committed before the query writes; a start that was interrupted is repeated
with the same result. Nothing of the store is read once the first batch is committed.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import msgspec

from tidelog.checkpoint.manifest import Author, Checkpoint, Savepoint, Start
from tidelog.checkpoint.slots import SlotLog, list_slots, read_slot
from tidelog.checkpoint.startup import moved_away
from tidelog.effects import Effects
from tidelog.errors import (
    ConfigError,
    CorruptObjectError,
    FormatVersionError,
    ObjectNotFoundError,
    RestoreError,
)
from tidelog.events import Event
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import RestorePlan, Resumption, check_name
from tidelog.runtime.restore.plan import plan_restore
from tidelog.runtime.sink import Sink, SinkContext
from tidelog.runtime.tasks.sink_output import token_of, transactions_of
from tidelog.runtime.user_code import in_user_code
from tidelog.spark.handover.begin import Beginning, Origin, handover_of
from tidelog.spark.handover.document import HANDOVER, Handover, QueryDirectory
from tidelog.spark.handover.savepoint import StoredSavepoint, read_savepoint
from tidelog.spark.job.sinks import Ledger
from tidelog.spark.source.parts import ReadSession, connected

logger = logging.getLogger(__name__)


def take_over(job: Job, origin: Origin, allowed: Collection[str] = ()) -> Beginning:
    """What the job's query begins with. The old job is fenced when this returns.

    `allowed` names state that may be dropped, as `JobConfig.allow_non_restored_state`. Raises
    RestoreError, StateSchemaError and others of a restore where the job does not go with the
    savepoint, before anything is fenced; FencedError, and what stores and sinks raise.
    """
    directory = origin.directory
    if directory.batches():
        return Beginning(directory.required_handover(), None)
    savepoint = read_savepoint(origin.savepoint, origin.access)
    _require_stop(savepoint)
    with connected(savepoint.url, origin.access) as session:
        plan = _plan(job, savepoint, allowed, session.effects)
        author = session.run(_fence(savepoint, directory.url, session))
        # Not again when sinks know of a start of the query: it began after this.
        if not Ledger(directory).last_start():
            session.run(_settle(job, plan, author, session.effects))
        transactions = session.run(_transactions(session))
    Event.JOB_MOVED.log(logger, job=job.name, location=directory.url)
    handover = _restored(handover_of(savepoint), plan, author)
    handover = msgspec.structs.replace(handover, transactions=transactions)
    directory.put(HANDOVER, handover)
    return Beginning(handover, savepoint)


def resumed(directory: QueryDirectory) -> Beginning | None:
    """What a query has taken over that starts again; None: it began without state of a job.

    Raises ConfigError where it has not taken over all: it would begin without.
    """
    handover = directory.handover()
    if handover is None or directory.batches():
        return None if handover is None else Beginning(handover, None)
    raise ConfigError(
        f"query at {directory.url}",
        expected=f"the savepoint that it begins with, checkpoint {handover.checkpoint} of "
        f"{handover.store}: its first batch is not committed",
        found="a start without",
        action=f"start it with --from {handover.store}@{handover.checkpoint} (savepoint=)",
    )


def _require_stop(savepoint: StoredSavepoint) -> None:
    checkpoint = savepoint.checkpoint
    is_stop = isinstance(checkpoint, Savepoint) and checkpoint.stop
    if not (is_stop or savepoint.has_ended):
        raise RestoreError(
            f"checkpoint {checkpoint.slot} of {savepoint.url}",
            expected="a savepoint with which the job was stopped, or the last checkpoint of a job "
            "that has ended, so that both do not go on",
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


async def _transactions(session: ReadSession) -> tuple[bytes, ...] | None:
    """Those that any checkpoint of the store names; None: one of these is damaged."""
    try:
        entries = [await read_slot(session.store, slot) for slot in await list_slots(session.store)]
    except (CorruptObjectError, FormatVersionError, ObjectNotFoundError):
        return None
    return transactions_of(entry for entry in entries if isinstance(entry, Checkpoint))


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


async def _settle(job: Job, plan: RestorePlan, author: Author, effects: Effects) -> None:
    """Let the job's sinks commit the transactions of a plan, as its start does; nothing is removed.

    Raises what the sinks raise, in UserFunctionError where that is no TidelogError.
    """
    for vertex in plan.vertices:
        node = vertex.nodes[-1]
        if node.sink is None:
            continue
        for subtask in vertex.subtasks:
            state = plan.state_of(subtask)
            tokens = list(map(token_of, state.transactions)) if state is not None else []
            if not tokens:
                continue
            context = SinkContext(
                job.name,
                node.id,
                subtask.subtask,
                vertex.parallelism,
                author.generation,
                author.attempt,
                retained_transactions=None,
                clock=effects.clock,
            )
            commit = partial(_commit, node.sink, context, tokens)
            await effects.offload.run_to_end(in_user_code(node.id, commit))


def _commit(sink: Sink, context: SinkContext, tokens: Sequence[bytes]) -> None:
    writer = sink.open(context)
    try:
        writer.recover(tokens)
    finally:
        writer.close()
