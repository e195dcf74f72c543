"""Operators without keyed state of their own: user functions over records or whole buffers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import compress
from types import MappingProxyType
from typing import Any

from tidelog.runtime.channels.messages import Batch, SideBatch
from tidelog.runtime.operators.answers import Answers
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.operators.outputs import Distinct, flattened
from tidelog.runtime.user_code import map_all


class MapRecords(Operator):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._distinct = Distinct()

    def open(self, context: OperatorContext) -> None:
        self._answers = Answers(context.operator, self._function, self._use)

    def _use(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def finish(self) -> Iterable[Batch]:
        self._answers.warn()
        return ()

    def process(self, batch: Batch) -> Iterable[Batch]:
        outputs = map_all(self._function, batch.records)
        self._distinct.check(outputs, batch.records)
        return (Batch(outputs, batch.times),)


class FilterRecords(MapRecords):
    def process(self, batch: Batch) -> Iterable[Batch]:
        predicate, records, times = self._function, batch.records, batch.times
        if times is None:
            return (Batch([record for record in records if predicate(record)]),)
        matches = map_all(predicate, records)
        return (Batch(list(compress(records, matches)), list(compress(times, matches))),)


class FlatMap(Operator):
    """One record in, any number out, which are taken as they are made."""

    divisible = False

    def __init__(self, function: Callable[[Any], Iterable[Any]]) -> None:
        self._function = function

    def open(self, context: OperatorContext) -> None:
        self._turn = context.turn
        self._distinct = Distinct()

    def process(self, batch: Batch) -> Iterable[Batch]:
        return flattened(self._function, batch, self._turn, self._distinct)


class MapBatches(Operator):
    """A whole buffer of records in, one out; event times are dropped."""

    divisible = False
    takes_whole_buffers = True

    def __init__(self, function: Callable[[list[Any]], Iterable[Any]]) -> None:
        self._function = function

    def process(self, batch: Batch) -> Iterable[Batch]:
        # The function may change its list, which others may have too, and give one again and again.
        return (Batch(list(self._function(list(batch.records)))),)


OnRule = Callable[[Any, MutableMapping[Any, Any]], None]
OnRecord = Callable[[Any, Mapping[Any, Any]], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A record of the broadcast stream, by its type different from other records."""

    record: Any


class Rules(Operator):
    def process(self, batch: Batch) -> Iterable[Batch]:
        return (Batch(map_all(Rule, batch.records), batch.times),)


class WithBroadcast(Operator):
    """Keeps rules in broadcast state, and handles records with a view of them."""

    divisible = False

    def __init__(self, on_rule: OnRule, on_record: OnRecord) -> None:
        self._on_rule = on_rule
        self._on_record = on_record

    def open(self, context: OperatorContext) -> None:
        self._rules = context.operator_states.broadcast(context.operator, "rules")
        self._view = MappingProxyType(self._rules)
        self._turn = context.turn
        self._distinct = Distinct()

    def process(self, batch: Batch) -> Iterable[Batch]:
        # A buffer comes from one channel, so it has rules or other records, never both.
        if isinstance(batch.records[0], Rule):
            for rule in batch.records:
                self._on_rule(rule.record, self._rules)
            return ()
        handle, view = self._on_record, self._view
        return flattened(lambda record: handle(record, view), batch, self._turn, self._distinct)


class Finished(Operator):
    """Another operator, whose records a function finishes, as sums and counts to means."""

    def __init__(self, operator: Operator, finish: Callable[[Any], Any]) -> None:
        self._operator = operator
        self._finish = finish
        self._distinct = Distinct()
        self.divisible = operator.divisible
        self.emits_at_end = operator.emits_at_end

    @property
    def late_records(self) -> int:  # type: ignore[override]
        return self._operator.late_records

    def open(self, context: OperatorContext) -> None:
        self._operator.open(context)

    def process(self, batch: Batch) -> Iterable[Batch]:
        return self._finished(self._operator.process(batch))

    def watermark(self, time: int) -> Iterable[Batch]:
        return self._finished(self._operator.watermark(time))

    def finish(self) -> Iterable[Batch]:
        return self._finished(self._operator.finish())

    def close(self) -> None:
        self._operator.close()

    def _finished(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if isinstance(batch, SideBatch) or not batch.records:
                yield batch  # also `PAUSE` and `REST`
            else:
                outputs = map_all(self._finish, batch.records)
                self._distinct.check(outputs, batch.records)
                yield Batch(outputs, batch.times)
