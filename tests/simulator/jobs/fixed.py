"""Jobs as users write them: broadcast rules, a shop, and visits that expire.

Invariants: what is emitted in all does not depend on the order in which inputs meet, or on when
records are read. Each record is checked where it is handled, against a number that it carries or
against state that does not expire.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from math import inf
from operator import add
from random import Random
from typing import Any, Final

from tests.simulator.jobs.plan import FixedPlan, Sinks
from tests.simulator.jobs.source import Arrivals, Record, drawn_arrivals
from tests.simulator.jobs.stages import Numbering, add_first, first_field, one, type_name
from tests.simulator.machine.process import now_ms
from tidelog import Job, Row, StatefulProcessor, StatefulProcessorHandle

_NEVER_MS: Final = 30 * 86_400_000
"""A time to live that nothing outlives here: with it state is stored in another way."""


def with_rules(rng: Random) -> FixedPlan:
    """Records against numbered rules, which all subtasks get in their order."""
    records = drawn_arrivals(rng, _of_number, (1, 2, 4), (40,))
    rules = drawn_arrivals(rng, _of_number, (1,), (5, 60, 150))
    parallelism = rng.choice((1, 2, 3, 4))
    counted = rng.random() < 0.4

    def build(sink: Sinks) -> Job:
        job = Job("rules", record_types=(Record,))
        broadcast = job.source(rules, name="rules", parallelism=1)
        read = job.source(records, name="records")
        checked = read.with_broadcast(broadcast, on_rule=_learn, on_record=_check)
        if counted:
            checked = checked.key_by(_class_of).aggregate(one, add)
        checked.sink(sink("checked"), name="checked")
        return job

    passed = [(record.number, True) for record in records.records]
    written = Counter(Counter(map(_class_of, passed)).items()) if counted else Counter(passed)
    return FixedPlan(parallelism=parallelism, build=build, expected={"checked": written})


def _of_number(number: int, _: int) -> Record:
    return Record("any", number, 0, 0)


def _learn(rule: Record, known: MutableMapping[Any, Any]) -> None:
    in_order = known.get("next", 0) == rule.number
    known["in order"] = known.get("in order", True) and in_order
    known["next"] = rule.number + 1


def _check(record: Record, known: Mapping[Any, Any]) -> Iterable[tuple[int, bool]]:
    return [(record.number, known.get("in order", True))]


def _class_of(checked: tuple[int, bool]) -> tuple[int, bool]:
    return checked[0] % 7, checked[1]


def shop(rng: Random) -> FixedPlan:
    """A union of rows, tuples and dicts, numbered by customer over values, maps and sums."""
    inputs = {
        "clicks": _purchases(rng, lambda who, n: Row(customer=who, page=f"page-{n}")),
        "payments": _purchases(rng, lambda who, n: (who, n)),
        "refunds": _purchases(rng, lambda who, n: {"who": who, "cents": n, "reason": None}),
    }
    parallelism, ttl_ms = rng.choice((1, 2, 3)), rng.choice((None, _NEVER_MS))

    def build(sink: Sinks) -> Job:
        job = Job("shop", record_types=(Row,))
        first, *others = [job.source(read, name=name) for name, read in inputs.items()]
        numbered = (
            first.union(*others)
            .key_by(_customer)
            .transform_with_state(lambda: Numbering(ttl_ms=ttl_ms))
        )
        numbered.sink(sink("numbered"), name="numbered")
        numbered.filter(_is_payment).sink(sink("paid"), name="paid", parallelism=1)
        return job

    records = (record for read in inputs.values() for record in read.records)
    counts = Counter((_customer(record), type_name(record)) for record in records)
    written = [(*kind, n) for kind, count in counts.items() for n in range(1, count + 1)]
    return FixedPlan(
        parallelism=parallelism,
        build=build,
        expected={"numbered": Counter(written), "paid": Counter(filter(_is_payment, written))},
    )


def _purchases(rng: Random, make: Callable[[str, int], Any]) -> Arrivals:
    return drawn_arrivals(
        rng, lambda n, _: make(f"c{rng.randrange(8)}", n), splits=(0, 1, 2), lengths=(3, 30)
    )


def _customer(record: Any) -> str:
    customer: str = record["who"] if isinstance(record, dict) else record[0]
    return customer


def _is_payment(numbered: tuple[str, str, int]) -> bool:
    return numbered[1] == "tuple"


def visits(rng: Random) -> FixedPlan:
    """Endless splits over state with a time to live, and over timers of processing time."""

    def visit(n: int, _: int) -> Row:
        return Row(visitor=f"v{rng.randrange(6)}", page=f"page-{rng.randrange(4)}", number=n)

    arrivals = drawn_arrivals(rng, visit, lengths=(5, 20, 40), open_until=inf)
    parallelism = rng.choice((1, 2, 3))
    ttl_ms, gap_ms = rng.choice((100, 700, 3000)), rng.choice((150, 600, 2000))

    def build(sink: Sinks) -> Job:
        job = Job("visits", record_types=(Row,))
        by_visitor = job.source(arrivals).key_by(first_field)
        by_visitor.transform_with_state(
            lambda: Remembering(ttl_ms), time_mode="processing", name="remembering"
        ).sink(sink("remembered"), name="remembered")
        by_visitor.transform_with_state(
            lambda: Sessions(gap_ms), time_mode="processing", name="sessions"
        ).sink(sink("sessions"), name="sessions-out")
        return job

    once = Counter((row.visitor, row.number, True) for row in arrivals.records)
    return FixedPlan(
        parallelism=parallelism, build=build, expected={"remembered": once, "sessions": once}
    )


class Remembering(StatefulProcessor):
    """Says of each row whether every state holds just what was written within the time to live."""

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        ttl = self._ttl_ms
        self._last = handle.getValueState("last", "number long", ttl)
        self._recent = handle.getListState("recent", "number long", ttl)
        self._pages = handle.getMapState("pages", "page string", "number long", ttl)
        self._run = handle.getReducingState("run", "length long", add_first, ttl)
        self._all = handle.getListState("all", "number long, page string, written long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            # The time of the timer values may be past when a row comes to its turn.
            now = now_ms()
            yield key[0], row.number, self._found() == self._wanted(now)
            self._last.update((row.number,))
            self._recent.appendValue((row.number,))
            self._pages.updateValue((row.page,), (row.number,))
            self._run.add((1,))
            self._all.appendValue((row.number, row.page, now))

    def _found(self) -> tuple[Any, ...]:
        recent = [number for (number,) in self._recent.get()]
        pages = {page: number for (page,), (number,) in self._pages.iterator()}
        return self._last.get(), recent, pages, self._run.get()

    def _wanted(self, now: int) -> tuple[Any, ...]:
        last, recent, pages, run = None, [], {}, 0
        written_before = -self._ttl_ms
        for number, page, written in self._all.get():
            run = 1 + (run if written < written_before + self._ttl_ms else 0)
            written_before = written
            if now < written + self._ttl_ms:
                last = (number,)
                recent.append(number)
                pages[page] = number
        return last, recent, pages, (run,) if last else None


class Sessions(StatefulProcessor):
    """Emits the rows of a visitor who did nothing for a while: their timer is put off each time."""

    def __init__(self, gap_ms: int) -> None:
        self._gap_ms = gap_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getListState("open", "number long")
        self._ends = handle.getValueState("ends", "at long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        self._open.appendList([(row.number,) for row in rows])
        before = self._ends.get()
        if before is not None:
            self._handle.deleteTimer(before[0])
        at = timerValues.getCurrentProcessingTimeInMs() + self._gap_ms
        self._handle.registerTimer(at)
        self._ends.update((at,))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        at = expiredTimerInfo.getExpiryTimeInMs()
        in_time = at <= timerValues.getCurrentProcessingTimeInMs()
        right = in_time and self._ends.get() == (at,) and list(self._handle.listTimers()) == [at]
        numbers = [number for (number,) in self._open.get()]
        self._open.clear()
        self._ends.clear()
        for number in numbers:
            yield key[0], number, right
