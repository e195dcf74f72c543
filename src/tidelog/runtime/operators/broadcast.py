"""Rules for a stream: every subtask knows the records of a second stream, which is broadcast.

Invariant: all subtasks have seen the same rules at a barrier, because a broadcast edge stays
aligned.
"""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.distinct import Distinct
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.operators.outputs import flattened
from tidelog.runtime.user_code import map_all

OnRule = Callable[[Any, MutableMapping[Any, Any]], None]
OnRecord = Callable[[Any, Mapping[Any, Any]], Iterable[Any]]

STATE = "rules"


@dataclass(frozen=True, slots=True)
class Rule:
    """Wraps a record of the broadcast stream, so that its type tells it from other records."""

    record: Any


class Rules(Operator):
    """Marks the records of a stream that is broadcast."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        return (Batch(map_all(Rule, batch.records), batch.times),)


class WithBroadcast(Operator):
    """Keeps rules in broadcast state, and handles records with a view of them."""

    divisible = False

    def __init__(self, on_rule: OnRule, on_record: OnRecord) -> None:
        self._on_rule = on_rule
        self._on_record = on_record

    def open(self, context: OperatorContext) -> None:
        self._rules = context.operator_states.broadcast(context.operator, STATE)
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
