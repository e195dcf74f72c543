"""A program that changes from start to start: types of keys and values, and an operator with state.

Invariant: each version writes what all the others write, so a change that is taken in silence
doubles something, and one that is migrated loses nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.simulator.jobs.job_plan import JobPlan, Refusal, Version
from tests.simulator.jobs.processors import Buckets, Numbering
from tests.simulator.jobs.source import Arrivals, Arriving
from tests.simulator.jobs.stages import InBuckets, Numbers, Stage, Totals, Windows
from tidelog.checkpoint.manifest import Checkpoint, OperatorState
from tidelog.runtime.graph import Job, KeyedStream, Stream
from tidelog.runtime.sink import Sink
from tidelog.state.processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from tidelog.state.schema.row import Row

_DISORDER_MS: Final = 300
_SIZE_MS: Final = 900
_STREAM_S: Final = 5.0
_FIELDS: Final = ("key", "number", "value", "time")
_EXTRA: Final = "extra"


@dataclass(frozen=True, slots=True)
class EvolvingPlan(JobPlan):
    """Orders, which a processor numbers and an aggregate or a window sums up."""

    seed: int
    """The seed from which the versions of the program are drawn."""
    orders: dict[str, Arriving]
    portion: int
    parallelism: int
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
            lets_go=calm or rng.random() < 0.5,
            renamed=renamed,
        )

    def job(self, now: Callable[[], float], sink: Callable[[str], Sink]) -> Job:
        return self.version(1, None, calm=False).job(now, sink)

    def expected(self) -> dict[str, Counter[Any]]:
        rows = self._rows()
        sums = self._evaluated(self.sums, rows)
        return {
            "processed": Counter(self._evaluated(self.processed, rows)),
            "sums": Counter((*result, True) for result in sums),
        }

    @property
    def processed(self) -> Stage:
        """What the processor does, as a stage."""
        return InBuckets() if self.buckets else Numbers(0)

    @property
    def sums(self) -> Stage:
        """What the aggregate or the window does, as a stage."""
        return Windows(_SIZE_MS, _SIZE_MS) if self.windows else Totals()

    def _evaluated(self, stage: Stage, rows: list[Any]) -> list[Any]:
        return stage.evaluate(rows, self.parallelism)

    def _rows(self) -> list[Any]:
        return [row for split in self.orders.values() for row in split.records]

    @property
    def judged(self) -> tuple[str, ...]:
        return ("passed", _EXTRA)

    def objection(self, committed: Mapping[str, Counter[Any]]) -> str | None:
        """The extra operator has handled what passed while it was there, each in one life."""
        passed, handled = committed.get("passed", Counter()), committed.get(_EXTRA, Counter())
        numbers = Counter(number for number, _ in passed.elements())
        if numbers != Counter(row.number for row in self._rows()):
            return f"{numbers.total()} of {len(self._rows())} records passed, or not once"
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
                if all(_keeps(self.version(start, None, calm=False)) for start in starts):
                    return f"start {born} made state of {key}, which nobody had let go of"
        return None

    def describe(self) -> str:
        return (
            f"parallelism {self.parallelism}; {len(self.orders)} splits; "
            f"{type(self.processed).__name__}, {type(self.sums).__name__}, in changing versions"
        )


def _has_counted(extra: OperatorState) -> bool:
    """Whether the operator that comes and goes has changed its state, and has not ended."""
    layers = [layer for subtask in extra.subtasks for layer in subtask.layers]
    over = all(subtask.finished for subtask in extra.subtasks)
    return not over and any(layer.seqno > layer.start for layer in layers)


def _keeps(version: "EvolvingVersion") -> bool:
    return version.extra or not version.lets_go


@dataclass(frozen=True, slots=True)
class EvolvingVersion(Version):
    """One of its versions."""

    plan: EvolvingPlan
    start: int
    tuple_keys: bool
    texts: bool
    """Values are text."""
    declares: bool
    migrates: bool
    extra: bool
    """The operator that comes and goes is there."""
    lets_go: bool
    """When it is not, its state may go."""
    renamed: bool
    """An operator without state has another name."""

    @property
    def dropped(self) -> tuple[str, ...]:
        return (_EXTRA,) if self.lets_go else ()

    def job(self, now: Callable[[], float], sink: Callable[[str], Sink]) -> Job:
        plan = self.plan
        job = Job("orders", record_types=(Row,))
        arrivals = Arrivals(plan.orders, plan.portion, 0.05, now, blocking=False)
        orders = job.source(arrivals, name="orders").event_time(_time, max_delay_ms=_DISORDER_MS)
        orders = orders.map(_same, name="known" if self.renamed else "the-same")
        passed = orders.map(lambda row: (row.number, self.extra), name="pass")
        passed.sink(sink("passed"), name="passed")
        keyed = self._keyed(orders)
        keyed.transform_with_state(
            Buckets if plan.buckets else lambda: Numbering(0),
            time_mode="event" if plan.buckets else "none",
            name="processor",
        ).sink(sink("processed"), name="processed")
        sums = self._summed(keyed).map(self._plain, name="plain")
        sums.sink(sink("sums"), name="sums-out")
        extra = orders.filter(_never, name="nothing")
        if self.extra:
            extra = orders.key_by(_key).transform_with_state(
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
            if not self.lets_go and _EXTRA in operators and _has_counted(operators[_EXTRA]):
                found.append("certain")
            on_their_way = (s.in_flight.inputs for _, s in checkpoint.subtasks() if s.in_flight)
            to_extra = any(name == _EXTRA for inputs in on_their_way for name, _ in inputs)
            if to_extra or not self.lets_go:
                found.append("possible")
        for name in ("processor", "sums"):
            if name in operators and not self.migrates and self._changes(operators[name]):
                over = all(subtask.finished for subtask in operators[name].subtasks)
                found.append("certain" if self.declares and not over else "possible")
        if self.migrates and any(map(self._moves_keys, operators.values())):
            found.append("possible")
        return max(found, key=("never", "possible", "certain").index)

    def _changes(self, stored: OperatorState) -> bool:
        """Whether keys or values have other types than what is stored."""
        key = "tuple[str]" if self.tuple_keys else "str"
        value = "str" if self.texts else "int"
        untyped = [kind for info in stored.states for kind in info.types]
        return any(kind != key for kind in stored.key_types) or any(k != value for k in untyped)

    def _moves_keys(self, stored: OperatorState) -> bool:
        """Whether keys change; not where barriers had overtaken records."""
        key = "tuple[str]" if self.tuple_keys else "str"
        return any(kind != key for kind in stored.key_types)

    def _keyed(self, orders: Stream) -> KeyedStream:
        key_of = _key_in_tuple if self.tuple_keys else _key
        if not self.declares:
            return orders.key_by(key_of)
        kind: Any = tuple[str] if self.tuple_keys else str
        convert = _into_tuple if self.tuple_keys else _out_of_tuple
        return orders.key_by(key_of, key_type=kind, migrate=convert if self.migrates else None)

    def _summed(self, keyed: KeyedStream) -> Stream:
        kind: Any = str if self.texts else int
        options: dict[str, Any] = {"value_type": kind} if self.declares else {}
        if self.migrates:
            options["migrate"] = kind

        def value_of(row: Any) -> Any:
            return kind(row.value)

        def combine(left: Any, right: Any) -> Any:
            return kind(int(left) + int(right))

        if self.plan.windows:
            return keyed.window(
                _SIZE_MS, value_of=value_of, combine=combine, name="sums", **options
            )
        return keyed.aggregate(value_of, combine, name="sums", **options)

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

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        for row in rows:
            born, count = self._count.get() or (self._start, 0)
            self._count.update((born, count + 1))
            yield key[0], born, count + 1, row.number


def evolving(rng: Random) -> EvolvingPlan:
    """A random job of this kind."""
    splits = {f"split-{at}": _split(rng, 10_000 * at) for at in range(rng.choice((1, 2, 3)))}
    return EvolvingPlan(
        seed=rng.randrange(1 << 30),
        orders=splits,
        portion=rng.choice((2, 10)),
        parallelism=rng.choice((1, 2, 3)),
        buckets=rng.random() < 0.5,
        windows=rng.random() < 0.5,
    )


def _split(rng: Random, first: int) -> Arriving:
    length = rng.choice((5, 20, 30))
    pace = _STREAM_S / length
    records = tuple(_order(rng, first + n, int(n * pace * 1000)) for n in range(length))
    return Arriving(records, tuple(n * pace for n in range(length)))


def _order(rng: Random, number: int, time: int) -> Row:
    values = (
        f"k{rng.randrange(6)}",
        number,
        rng.randrange(100),
        time + rng.randrange(_DISORDER_MS),
    )
    return Row.of(_FIELDS, values)


def _same(row: Row) -> Row:
    return row


def _never(row: Row) -> bool:
    return False


def _time(row: Row) -> int:
    time: int = row.time
    return time


def _key(row: Row) -> str:
    key: str = row.key
    return key


def _key_in_tuple(row: Row) -> tuple[str]:
    return (row.key,)


def _into_tuple(key: str) -> tuple[str]:
    return (key,)


def _out_of_tuple(key: tuple[str]) -> str:
    return key[0]
