"""A shop: a union of unlike inputs, keyed by what they have in common, over every kind of state.

Invariant: what is emitted in all does not depend on the order in which inputs meet: each record
gets its number within its customer and kind.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.simulator.jobs.job_plan import JobPlan
from tests.simulator.jobs.source import Arrivals, Arriving
from tidelog.runtime.graph import Job
from tidelog.runtime.sink import Sink
from tidelog.state.processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from tidelog.state.schema.row import Row

_STREAM_S: Final = 5.0
_NEVER_MS: Final = 30 * 86_400_000
"""A time to live that nothing outlives here: with it state is stored in another way."""


@dataclass(frozen=True, slots=True)
class ShopPlan(JobPlan):
    """Clicks as rows, payments as tuples, refunds as dicts."""

    clicks: dict[str, Arriving]
    payments: dict[str, Arriving]
    refunds: dict[str, Arriving]
    portion: int
    parallelism: int
    ttl_ms: int | None

    def job(self, now: Callable[[], float], sink: Callable[[str], Sink]) -> Job:
        job = Job("shop", record_types=(Row,))
        streams = [
            job.source(Arrivals(splits, self.portion, 0.05, now, blocking=False), name=name)
            for name, splits in self._inputs().items()
        ]
        numbered = (
            streams[0]
            .union(*streams[1:])
            .key_by(_customer)
            .transform_with_state(lambda: Numbered(self.ttl_ms))
        )
        numbered.sink(sink("numbered"), name="numbered")
        numbered.filter(_is_payment).sink(sink("paid"), name="paid", parallelism=1)
        return job

    def expected(self) -> dict[str, Counter[Any]]:
        counts: dict[tuple[Any, str], int] = defaultdict(int)
        for splits in self._inputs().values():
            for split in splits.values():
                for record in split.records:
                    counts[_customer(record), _kind(record)] += 1
        numbered = [
            (customer, kind, number)
            for (customer, kind), count in counts.items()
            for number in range(1, count + 1)
        ]
        return {"numbered": Counter(numbered), "paid": Counter(filter(_is_payment, numbered))}

    def describe(self) -> str:
        inputs = ", ".join(f"{name} {len(splits)}" for name, splits in self._inputs().items())
        return f"parallelism {self.parallelism}; splits: {inputs}; ttl {self.ttl_ms} ms"

    def _inputs(self) -> dict[str, dict[str, Arriving]]:
        return {"clicks": self.clicks, "payments": self.payments, "refunds": self.refunds}


class Numbered(StatefulProcessor):
    """Emits (customer, kind, 1), (customer, kind, 2), ...; every count is kept three times."""

    def __init__(self, ttl_ms: int | None) -> None:
        self._ttl_ms = ttl_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        ttl = self._ttl_ms
        self._counts = handle.getMapState("counts", "kind string", "count long", ttl)
        self._all = handle.getValueState("all", "count long", ttl)
        self._kinds = handle.getListState("kinds", "kind string", ttl)

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        for row in rows:
            kind = _kind(row)
            stored = self._counts.getValue((kind,))
            count = 1 + (stored[0] if stored is not None else 0)
            self._counts.updateValue((kind,), (count,))
            of_all = self._all.get()
            total = 1 + (of_all[0] if of_all is not None else 0)
            self._all.update((total,))
            self._kinds.appendValue((kind,))
            listed = [one for (one,) in self._kinds.get()]
            agreed = len(listed) == total and listed.count(kind) == count
            yield key[0], kind, count if agreed else -count


def shop(rng: Random) -> ShopPlan:
    """A random job of this kind."""
    return ShopPlan(
        clicks=_splits(rng, _click),
        payments=_splits(rng, _payment),
        refunds=_splits(rng, _refund),
        portion=rng.choice((2, 10)),
        parallelism=rng.choice((1, 2, 3)),
        ttl_ms=rng.choice((None, _NEVER_MS)),
    )


def _splits(rng: Random, make: Callable[[str, int], Any]) -> dict[str, Arriving]:
    splits = {}
    for at in range(rng.choice((0, 1, 2))):
        length = rng.choice((3, 30))
        pause = rng.choice((0.0, _STREAM_S / length))
        records = tuple(make(f"c{rng.randrange(8)}", n) for n in range(length))
        splits[f"split-{at}"] = Arriving(records, tuple(n * pause for n in range(length)))
    return splits


def _click(customer: str, number: int) -> Row:
    return Row(customer=customer, page=f"page-{number}")


def _payment(customer: str, number: int) -> tuple[str, int]:
    return customer, number


def _refund(customer: str, number: int) -> dict[str, Any]:
    return {"who": customer, "cents": number, "reason": None}


def _customer(record: Any) -> str:
    customer: str = record["who"] if isinstance(record, dict) else record[0]
    return customer


def _kind(record: Any) -> str:
    if isinstance(record, dict):
        return "refund"
    return "click" if isinstance(record, Row) else "payment"


def _is_payment(numbered: tuple[str, str, int]) -> bool:
    return numbered[1] == "payment"
