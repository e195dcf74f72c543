"""Rules for a stream: records of one stream are known in every subtask that handles another's.

Invariant: all subtasks have seen the same rules at a barrier, for a broadcast edge stays aligned.
"""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tidelog.runtime.blame import every
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.operator import Operator, OperatorContext

OnRule = Callable[[Any, MutableMapping[Any, Any]], None]
OnRecord = Callable[[Any, Mapping[Any, Any]], Iterable[Any]]

STATE = "rules"


@dataclass(frozen=True, slots=True)
class Rule:
    """A record of the broadcast stream, told apart from the others by its type."""

    record: Any


class Rules(Operator):
    """Marks the records of a stream that is broadcast."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        return (Batch(every(Rule, batch.records), batch.times),)


class WithBroadcast(Operator):
    """Keeps rules in broadcast state, and handles records with a view of them."""

    def __init__(self, on_rule: OnRule, on_record: OnRecord) -> None:
        self._on_rule = on_rule
        self._on_record = on_record

    def open(self, context: OperatorContext) -> None:
        self._rules = context.operator_states.broadcast(context.operator, STATE)
        self._view = MappingProxyType(self._rules)

    def process(self, batch: Batch) -> Iterable[Batch]:
        # A buffer comes from one channel, so it has rules or other records, never both.
        if isinstance(batch.records[0], Rule):
            for rule in batch.records:
                self._on_rule(rule.record, self._rules)
            return ()
        handle, view = self._on_record, self._view
        if batch.times is None:
            return (Batch([out for record in batch.records for out in handle(record, view)]),)
        pairs = [
            (out, time)
            for record, time in zip(batch.records, batch.times, strict=True)
            for out in handle(record, view)
        ]
        return (Batch([out for out, _ in pairs], [time for _, time in pairs]),)
