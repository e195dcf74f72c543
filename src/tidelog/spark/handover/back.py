"""A stopped query that is a job becomes a canonical savepoint, so the job returns to one machine.

Invariants: the savepoint is that of the last committed batch, with nothing in flight and nothing
pre-committed; the store is taken over before rows are written, and the savepoint is its newest
entry; afterwards the query's checkpoint says where the job is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.catalog.locate import parse_origin
from tidelog.checkpoint.decisions import check_name
from tidelog.checkpoint.formats import FORMATS, above_first
from tidelog.checkpoint.manifest import (
    Author,
    OperatorState,
    Savepoint,
    Start,
    StateInfo,
    SubtaskState,
)
from tidelog.checkpoint.retention import slot_ranges
from tidelog.checkpoint.slots import SlotLog, list_slots, read_slot
from tidelog.errors import ConfigError, RestoreError
from tidelog.ids import CheckpointId, KeyGroup, SeqNo, Slot
from tidelog.spark.checkpoint.checkpoint import store_url
from tidelog.spark.handover.document import RETURN, Handover, QueryDirectory, Return
from tidelog.spark.handover.pages import (
    GroupFacts,
    StoredOperator,
    facts_of,
    operator_numbers,
    pages_of,
)
from tidelog.spark.handover.savepoint import SPLITS
from tidelog.spark.handover.sources import QuerySources, SourceDescription, read_splits
from tidelog.spark.handover.writing import (
    RESULT_SCHEMA,
    GroupWriter,
    SubtaskLog,
    Target,
    WrittenSubtask,
)
from tidelog.spark.job.sinks import Ledger
from tidelog.spark.operators.input_times import latest_times
from tidelog.spark.operators.layout import OperatorDescription, Row
from tidelog.spark.source.parts import ReadSession, connected
from tidelog.state.event_time import UNKNOWN, EventTime
from tidelog.state.key_groups import encode_key, key_group, range_of
from tidelog.storage.open import PLAIN, StoreAccess
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLE: Final = "rocksdb"
_SPLITS_STATE: Final = StateInfo(0, "$splits", SPLITS, ("msgpack",))


@dataclass(frozen=True, slots=True)
class StoppedQuery:
    """What the checkpoint of a query says of its job."""

    location: str
    sources: QuerySources
    descriptions: Mapping[str, OperatorDescription]
    handover: Handover | None
    """None: the query began without state of a job."""
    batch: int
    """The last one that is committed."""
    splits: Mapping[str, Mapping[str, bytes]]
    """By source what a manifest has of each split."""
    starts: int
    """The last start of the query, as its sinks know it."""

    def first_change(self, source: str) -> SeqNo:
        """Above the numbers of a source's changes before the job moved."""
        last = 0
        for operator in self.handover.operators if self.handover is not None else ():
            for subtask in operator.subtasks if operator.id == source else ():
                last = max(last, subtask.seqno)
        return SeqNo(last + 1)

    @property
    def next_checkpoint(self) -> CheckpointId:
        """Above those of the job, and those that sinks know batches by."""
        before = 0 if self.handover is None else self.handover.checkpoint_id
        return CheckpointId(before + self.batch + 2)


def bring_back(
    spark: "SparkSession",
    location: str,
    target: str,
    *,
    access: StoreAccess = PLAIN,
    parallelism: int | None = None,
    without_positions: bool = False,
) -> Savepoint:
    """Make the savepoint `URL@NAME` of the query whose checkpoint is at `location`.

    Each operator has so many subtasks in it, None: as many as Spark has cores. A savepoint
    `without_positions` has the operators alone: the job reads its sources from their start. The
    store is that which the job moved from, or an empty one. What was interrupted can be repeated:
    until the savepoint is there, the store says that the job is in Spark. Raises ConfigError and
    RestoreError for a query or a store that this cannot be, before anything is written, and what
    Spark and the stores raise.
    """
    origin = parse_origin(target)
    name = check_name(str(origin.checkpoint))
    query = read_query(location, access, without_positions=without_positions)
    numbers = operator_numbers(spark, location)
    cores = spark.sparkContext.defaultParallelism
    with connected(store_url(origin.url), access) as session:
        session.run(_check_target(session.store, query, name))
        slots = SlotLog(session.store, session.effects)
        first, url = Slot(query.starts + 1), store_url(location)
        take_over = session.run(slots.take_over(query.sources.job, first, moved_to=url))
        author = Author(take_over.generation, take_over.attempt)
        aims = _targets(query, session.store.url, author, access)
        operators: list[OperatorState] = []
        read_to: dict[str, dict[str, int]] = {}
        for operator, description in query.descriptions.items():
            on_spark = StoredOperator(location, operator, numbers[operator], query.batch)
            facts = facts_of(spark, on_spark)
            for group in islice(facts.values(), 1):  # all know the same
                read_to |= {} if group.times is None else latest_times(group.times)
            last = max([description.seqno, *(group.seqno for group in facts.values())])
            aim = replace(
                aims[operator],
                parallelism=min(parallelism or cores, description.key_groups),
                start=SeqNo(last + 1),
            )
            logs = _written(spark, on_spark, aim)
            operators.append(operator_state(description, aim, logs, facts))
        for source in query.sources.sources:
            latest = read_to.get(source.source, {})
            operators.append(_source_state(session, query, source, aims[source.source], latest))
        entry = Savepoint(
            slot=Slot(author.generation + 1),
            author=author,
            checkpoint_id=query.next_checkpoint,
            created_ms=session.effects.clock.now_ms(),
            job=query.sources.job,
            operators=tuple(operators),
            history=slot_ranges(take_over.slots),
            formats=above_first(FORMATS),
            name=name,
            savepoint_format="canonical",
            stop=True,
        )
        # First: a query that starts again beside its job would write everything twice.
        QueryDirectory(location, access).put(RETURN, Return(f"{origin.url}@{name}"))
        session.run(slots.append(entry))
    return entry


def _targets(
    query: StoppedQuery, url: str, author: Author, access: StoreAccess
) -> dict[str, Target]:
    """Where the rows of each operator and source go, in one subtask."""
    operators = [(one.operator, one.states, one.key_groups) for one in query.descriptions.values()]
    for source in query.sources.sources:
        operators.append((source.source, (_SPLITS_STATE,), query.sources.key_groups))
    targets: dict[str, Target] = {}
    for number, (name, states, key_groups) in enumerate(operators):
        targets[name] = Target(
            url,
            access,
            author.generation,
            query.next_checkpoint,
            name,
            number,
            states,
            key_groups,
            parallelism=1,
            start=query.first_change(name),
        )
    return targets


def read_query(
    location: str, access: StoreAccess = PLAIN, *, without_positions: bool = False
) -> StoppedQuery:
    """What a checkpoint says; raises ConfigError for the query of no job, and for one whose
    positions are not those of the job's sources; RestoreError for one that was killed in the middle
    of a batch.
    """
    directory = QueryDirectory(location, access)
    ledger = Ledger(directory)
    sources, handover = directory.sources(), directory.handover()
    if without_positions:
        sources = msgspec.structs.replace(sources, sources=())
    elif sources.frames:
        raise ConfigError(
            f"query at {location}",
            expected="one that reads by the job's own sources, as `tidelog spark run` starts it",
            found=f"data frames in place of sources {', '.join(sources.frames)} (run_operator): "
            "how far these are read is not known in terms of the sources",
            action="add --without-positions for a savepoint of the operators alone. The job then "
            "reads its sources from their start: give it only what the query has not read",
        )
    splits: dict[str, Mapping[str, bytes]] = {}
    batch = max(directory.batches(), default=None)
    if batch is None:
        raise ConfigError(
            f"checkpoint {location}",
            expected="a query that has committed a batch",
            found="none",
            action="let the query run, and stop it; before its first batch the job's savepoint is "
            "what there is",
        )
    offsets = directory.offsets(batch)
    with directory.connected() as session:
        for source in sources.sources:
            before = {} if handover is None else handover.splits.get(source.source, {})
            reading = read_splits(session.store, offsets, source, before)
            splits[source.source] = session.run(reading)
    transactions = ledger.batches()
    if transactions and transactions[-1].batch > batch:
        raise RestoreError(
            f"checkpoint {location}",
            expected=f"a query that was stopped after a batch; the last one is {batch}",
            found=f"output of batch {transactions[-1].batch}, which is not committed",
            action="start the query again with `tidelog spark run ... --available-now`, and repeat "
            "this when it has ended",
        )
    starts = ledger.last_start()
    return StoppedQuery(
        location, sources, directory.descriptions(), handover, batch, splits, starts
    )


async def _check_target(store: ObjectStore, query: StoppedQuery, name: str) -> None:
    """Raises ConfigError for a store that another job has, or that the job did not move from."""
    slots = list(await list_slots(store))
    if not slots:
        return
    entry = await read_slot(store, slots[-1])
    location = store_url(query.location)
    if not (isinstance(entry, Start) and entry.moved_to == location):
        raise ConfigError(
            f"store {store.url}",
            expected="an empty one, or the one that the job moved from",
            found=f"checkpoints of job {entry.job!r}, which did not move to {location}",
            action="choose another URL",
        )
    for slot in slots:
        entry = await read_slot(store, slot)
        if isinstance(entry, Savepoint) and entry.name == name:
            raise ConfigError(
                f"savepoint {name!r} of store {store.url}",
                expected="a name of its own",
                found="one that is there",
                action="choose another name",
            )


def _written(
    spark: "SparkSession", operator: StoredOperator, target: Target
) -> dict[int, WrittenSubtask]:
    """The logs of an operator's subtasks that have rows, written by Spark's tasks."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (heavy)

    subtask = f.floor(f.col("key_group") * target.parallelism / target.key_groups).cast("int")
    ordered = (
        pages_of(spark, operator)
        .withColumn("subtask", subtask)
        .repartition(target.parallelism, "subtask")
        .sortWithinPartitions("subtask", "key_group", "number")
    )
    subtasks: dict[int, WrittenSubtask] = {}
    for row in ordered.mapInArrow(GroupWriter(target), RESULT_SCHEMA).collect():
        subtasks[row.subtask] = msgspec.msgpack.decode(bytes(row.result), type=WrittenSubtask)
    return subtasks


def operator_state(
    description: OperatorDescription,
    target: Target,
    logs: Mapping[int, WrittenSubtask],
    facts: Mapping[int, GroupFacts],
) -> OperatorState:
    """A keyed operator as a manifest has it. Pure."""
    times = _event_times(description, facts)
    subtasks: list[SubtaskState] = []
    for index in range(target.parallelism):
        groups = range_of(index, target.key_groups, target.parallelism)
        minimum = min(times[group] for group in groups)
        later = {group: times[group] for group in groups if times[group] > minimum}
        log = logs.get(index)
        subtasks.append(
            SubtaskState(
                index,
                groups.first,
                groups.last,
                target.start if log is None else log.end,
                _TABLE,
                log=() if log is None else log.log,
                start=target.start,
                watermark=None if minimum == UNKNOWN else minimum,
                ahead=EventTime(minimum, later).stored(),
            )
        )
    return OperatorState(
        description.operator,
        description.key_groups,
        description.states,
        tuple(subtasks),
        key_types=description.key_types,
        meaning=description.meaning,
    )


def _event_times(
    description: OperatorDescription, facts: Mapping[int, GroupFacts]
) -> dict[int, int]:
    """How far event time is in each key group: what is due has fired in the same batch."""
    begin = EventTime.restored(description.watermark, description.ahead)
    times: dict[int, int] = {}
    for group in range(description.key_groups):
        watermark = facts[group].watermark if group in facts else None
        times[group] = begin.of(group.to_bytes(2, "big")) if watermark is None else watermark
    return times


def _source_state(
    session: ReadSession,
    query: StoppedQuery,
    source: SourceDescription,
    target: Target,
    latest: Mapping[str, int],
) -> OperatorState:
    """A source as a manifest has it: one subtask, whose few rows are written here.

    `latest` is the greatest event time that was read of each split that goes on.
    """
    rows: dict[KeyGroup, list[Row]] = {}
    for split, stored in query.splits[source.source].items():
        data = stored
        if split in latest:
            is_ended, position, *_ = msgspec.msgpack.decode(stored)
            data = msgspec.msgpack.encode([is_ended, position, latest[split]])
        key = encode_key(split)
        group = key_group(key, target.key_groups)
        rows.setdefault(group, []).append((_SPLITS_STATE.id.to_bytes(2, "big") + key, data))
    log = SubtaskLog(target, 0, session)
    for group in sorted(rows):
        log.put(group, sorted(rows[group]))
    subtask = log.finish()
    groups = range_of(0, target.key_groups, 1)
    state = SubtaskState(
        *(0, groups.first, groups.last, subtask.end, _TABLE), log=subtask.log, start=target.start
    )
    return OperatorState(
        source.source, target.key_groups, target.states, (state,), source_types=source.types
    )
