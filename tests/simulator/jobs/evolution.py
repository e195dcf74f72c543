"""A program that changes from start to start: types of keys and values, and an operator with state.

Invariant: each version writes what all the others write, so a change that is taken in silence
doubles something, and one that is migrated loses nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.simulator.jobs import stages
from tests.simulator.jobs.plan import JobPlan, Refusal, Sinks, Version
from tests.simulator.jobs.source import DISORDER_MS, Arrivals, Record, drawn_arrivals
from tidelog import Tumbling
from tidelog.checkpoint.manifest import Checkpoint, OperatorState
from tidelog.runtime.graph import Job, KeyedStream, Stream
from tidelog.state.processor import StatefulProcessor, StatefulProcessorHandle
from tidelog.state.schema.row import Row

_SIZE_MS: Final = 900
_EXTRA: Final = "extra"


@dataclass(frozen=True, kw_only=True)
class EvolvingPlan(JobPlan):
    """Orders, which a processor numbers and an aggregate or a window sums up."""

    seed: int
    """The seed from which the versions of the program are drawn."""
    orders: Arrivals
    buckets: bool
    """The processor has timers."""
    windows: bool

    def version(self, start: int, ended: Version | None, *, calm: bool) -> "EvolvingVersion":
        rng = Random(f"{self.seed}/{start}")
        extra, renamed = rng.random() < 0.5, rng.random() < 0.5
        if isinstance(ended, EvolvingVersion):
            # In front of operators that have finished nothing new may come.
            extra, renamed = ended.extra, ended.renamed
        declares = start > 1 and rng.random() < 0.6
        return EvolvingVersion(
            self,
            start,
            tuple_keys=rng.random() < 0.5,
            texts=rng.random() < 0.5,
            declares=declares or calm,
            migrates=calm or (declares and rng.random() < 0.6),
            extra=extra or (calm and ended is None),
            dropped=(_EXTRA,) if calm or rng.random() < 0.5 else (),
            renamed=renamed,
        )

    def objection(self, committed: Mapping[str, Counter[Any]]) -> str | None:
        """The extra operator has handled what passed while it was there, each in one life."""
        passed, handled = committed.get("passed", Counter()), committed.get(_EXTRA, Counter())
        numbers = Counter(number for number, _ in passed.elements())
        orders = Counter(row.number for row in self.orders.records)
        if numbers != orders:
            return f"{numbers.total()} of {orders.total()} records passed, or not once"
        there = {number for number, extra in passed if extra}
        if Counter(there) != Counter(number for *_, number in handled.elements()):
            return f"{handled.total()} records were in the extra operator, {len(there)} expected"
        lives: dict[tuple[str, int], list[int]] = defaultdict(list)
        for key, born, count, _ in handled:
            lives[key, born].append(count)
        for (key, born), counts in sorted(lives.items()):
            if sorted(counts) != list(range(1, len(counts) + 1)):
                return f"the state of {key} that start {born} made has counted {sorted(counts)}"
            if before := [other for of, other in lives if of == key and other < born]:
                starts = range(max(before) + 1, born + 1)
                if all(self.version(start, None, calm=False).keeps_extra for start in starts):
                    return f"start {born} made state of {key}, which was never dropped"
        return None


def _has_counted(extra: OperatorState) -> bool:
    """Whether the operator that comes and goes has changed its state, and has not ended."""
    layers = [layer for subtask in extra.subtasks for layer in subtask.layers]
    return not _has_ended(extra) and any(layer.seqno > layer.start for layer in layers)


def _has_ended(operator: OperatorState) -> bool:
    return all(subtask.finished for subtask in operator.subtasks)


@dataclass(frozen=True)
class EvolvingVersion(Version):
    plan: EvolvingPlan
    start: int
    tuple_keys: bool
    texts: bool
    """Values are text."""
    declares: bool
    migrates: bool
    extra: bool
    """The operator that comes and goes is there."""
    renamed: bool
    """An operator without state has another name."""
    dropped: tuple[str, ...] = ()

    @property
    def keeps_extra(self) -> bool:
        return self.extra or not self.dropped

    def job(self, sink: Sinks) -> Job:
        plan = self.plan
        job = Job("orders", record_types=(Row,))
        orders = job.source(plan.orders, name="orders")
        orders = orders.event_time(stages.time_of, max_delay_ms=DISORDER_MS)
        orders = orders.map(stages.same, name="known" if self.renamed else "the-same")
        passed = orders.map(lambda row: (row.number, self.extra), name="pass")
        passed.sink(sink("passed"), name="passed")
        keyed = self._keyed(orders)
        keyed.transform_with_state(
            stages.Buckets if plan.buckets else stages.Numbering,
            time_mode="event" if plan.buckets else "none",
            name="processor",
        ).sink(sink("processed"), name="processed")
        sums = self._summed(keyed).map(self._plain, name="plain")
        sums.sink(sink("sums"), name="sums-out")
        extra = orders.filter(lambda row: False, name="nothing")
        if self.extra:
            extra = orders.key_by(stages.key_of).transform_with_state(
                lambda: Counting(self.start), name=_EXTRA
            )
        extra.sink(sink(_EXTRA), name="extra-out")
        return job

    def refusal(self, checkpoint: Checkpoint) -> Refusal:
        operators = {operator.id: operator for operator in checkpoint.operators}
        found: list[Refusal] = ["never"]
        if any(subtask.finished for _, subtask in checkpoint.subtasks()):
            found.append("possible")
        if not self.extra:
            if not self.dropped and _EXTRA in operators and _has_counted(operators[_EXTRA]):
                found.append("certain")
            in_flight = (s.in_flight.inputs for _, s in checkpoint.subtasks() if s.in_flight)
            if not self.dropped or any(name == _EXTRA for each in in_flight for name, _ in each):
                found.append("possible")
        for name in ("processor", "sums"):
            if name in operators and not self.migrates and self._changes(operators[name]):
                certain = self.declares and not _has_ended(operators[name])
                found.append("certain" if certain else "possible")
        # Keys may change, but not where barriers had overtaken records.
        if self.migrates and any(map(self._moves_keys, operators.values())):
            found.append("possible")
        return max(found, key=("never", "possible", "certain").index)

    def _changes(self, stored: OperatorState) -> bool:
        """Whether keys or values have other types than what is stored."""
        value = "str" if self.texts else "int"
        untyped = [kind for info in stored.states for kind in info.types]
        return self._moves_keys(stored) or any(kind != value for kind in untyped)

    def _moves_keys(self, stored: OperatorState) -> bool:
        key = "tuple[str]" if self.tuple_keys else "str"
        return any(kind != key for kind in stored.key_types)

    def _keyed(self, orders: Stream) -> KeyedStream:
        key = (lambda row: (row.key,)) if self.tuple_keys else stages.key_of
        if not self.declares:
            return orders.key_by(key)
        kind: Any = tuple[str] if self.tuple_keys else str
        convert = (lambda key: (key,)) if self.tuple_keys else stages.first_field
        return orders.key_by(key, key_type=kind, migrate=convert if self.migrates else None)

    def _summed(self, keyed: KeyedStream) -> Stream:
        kind: Any = str if self.texts else int
        options: dict[str, Any] = {"name": "sums"}
        if self.declares:
            options["value_type"] = kind
        if self.migrates:
            options["migrate"] = kind

        def value_of(row: Any) -> Any:
            return kind(row.value)

        def combine(left: Any, right: Any) -> Any:
            return kind(int(left) + int(right))

        if self.plan.windows:
            windows = keyed.window(Tumbling(_SIZE_MS), name=options.pop("name"))
            return windows.aggregate(value_of, combine, **options)
        return keyed.aggregate(value_of, combine, **options)

    def _plain(self, result: Any) -> Any:
        """A result as all versions write it, and whether its types are those that it declares."""
        key, *start, value = result
        right = isinstance(key, tuple) is self.tuple_keys and isinstance(value, str) is self.texts
        # Undeclared, what was stored with other types goes on until something is added to it.
        right = right or not self.declares
        return (key[0] if isinstance(key, tuple) else key, *start, int(value), right)


class Counting(StatefulProcessor):
    """Counts the records of a key; the count belongs to the start that began it."""

    def __init__(self, start: int) -> None:
        self._start = start

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "born long, count long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            born, count = self._count.get() or (self._start, 0)
            self._count.update((born, count + 1))
            yield key[0], born, count + 1, row.number


def evolving(rng: Random) -> EvolvingPlan:
    def order(n: int, time: int) -> Row:
        return Row.of(Record._fields, (f"k{rng.randrange(6)}", n, rng.randrange(100), time))

    orders = drawn_arrivals(rng, order, (1, 2, 3), (5, 20, 30), at_once=0.0)
    seed = rng.randrange(1 << 30)
    processed = stages.BUCKETS if rng.random() < 0.5 else stages.numbering()
    sums = stages.sliding(_SIZE_MS, _SIZE_MS).sums() if rng.random() < 0.5 else stages.TOTALS
    rows = orders.records
    expected = {
        "processed": Counter(processed.evaluate(rows)),
        "sums": Counter((*result, True) for result in sums.evaluate(rows)),
    }
    return EvolvingPlan(
        parallelism=rng.choice((1, 2, 3)),
        expected=expected,
        seed=seed,
        orders=orders,
        buckets=processed is stages.BUCKETS,
        windows=sums is not stages.TOTALS,
    )
