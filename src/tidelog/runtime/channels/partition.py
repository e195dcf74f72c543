"""Partitioners: which subtask of the next operator gets a record.

Invariants: behind `key_by` a record goes to the subtask that owns its key group, and nowhere
else; keys that encode alike are equal, and equal keys of one type encode alike.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final

import google_crc32c

from tidelog.errors import UserFunctionError
from tidelog.runtime.blame import blame, every
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.state.key_groups import encode_key, subtask_of

Routed = Iterator[tuple[int, Batch]]

_AS_THEY_ARE: Final = frozenset({str, int, bool, bytes, type(None)})


def _canonical_float(key: float) -> float:
    """One zero and one NaN, as in Spark."""
    return math.nan if math.isnan(key) else float.__add__(key, 0.0)


_VALUE_OF: Final[dict[type, Callable[[Any], Any]]] = {
    float: _canonical_float,
    # Subclasses, such as an enum of strings, are the same key as their value.
    str: str.__str__,
    int: int.__int__,
    bytes: bytes.__bytes__,
}


class Partitioner(ABC):
    """Splits a buffer among `targets` subtasks."""

    @abstractmethod
    def route(self, batch: Batch) -> Routed: ...


class Forward(Partitioner):
    """To the subtask of the same number."""

    def __init__(self, subtask: int) -> None:
        self._subtask = subtask

    def route(self, batch: Batch) -> Routed:
        yield self._subtask, batch


class Rebalance(Partitioner):
    """Whole buffers in turn."""

    def __init__(self, targets: int, start: int) -> None:
        self._targets = targets
        self._next = start % targets

    def route(self, batch: Batch) -> Routed:
        target, self._next = self._next, (self._next + 1) % self._targets
        yield target, batch


class Broadcast(Partitioner):
    """Everything to everyone."""

    def __init__(self, targets: int) -> None:
        self._targets = targets

    def route(self, batch: Batch) -> Routed:
        for target in range(self._targets):
            yield target, batch


class ByKey(Partitioner):
    """By the key group of a record's key; raises UserFunctionError for a key of another type."""

    def __init__(
        self, key_of: Callable[[Any], Any], targets: int, key_groups: int, name: str = "key_by"
    ) -> None:
        self._key_of = key_of
        self._name = name
        self._targets = targets
        self._key_groups = key_groups
        self._prefixes = [group.to_bytes(2, "big") for group in range(key_groups)]
        self._owner = [subtask_of(group, key_groups, targets) for group in range(key_groups)]

    def route(self, batch: Batch) -> Routed:
        crc, count = google_crc32c.value, self._key_groups
        with blame(self._name):
            keys = self._encoded(every(self._key_of, batch.records))
        numbers = [crc(key) % count for key in keys]
        prefixes = self._prefixes
        groups = [prefixes[number] for number in numbers]
        whole = KeyedBatch(batch.records, batch.times, keys, groups)
        if self._targets == 1:
            yield 0, whole
            return
        owner = self._owner
        chosen: list[list[int]] = [[] for _ in range(self._targets)]
        for at, number in enumerate(numbers):
            chosen[owner[number]].append(at)
        for target, positions in enumerate(chosen):
            if positions:
                yield target, _pick(whole, positions)

    def _encoded(self, keys: list[Any]) -> list[bytes]:
        if not _plain(keys):
            keys = [self._canonical(key) for key in keys]
        try:
            return list(map(encode_key, keys))
        except OverflowError as error:
            raise self._refusal("an int beyond 64 bits") from error

    def _canonical(self, key: Any) -> Any:
        """The one form of all keys equal to this one; raises for a type without."""
        if type(key) in _AS_THEY_ARE:
            return key
        if isinstance(key, tuple):
            return tuple(map(self._canonical, key))
        for basic, value_of in _VALUE_OF.items():
            if isinstance(key, basic):
                return value_of(key)
        raise self._refusal(f"a key of type {type(key).__qualname__}")

    def _refusal(self, found: str) -> UserFunctionError:
        return UserFunctionError(
            self._name,
            expected="a key that is a str, int (64 bits), bool, bytes, float, None or a tuple of "
            "these",
            found=found,
            action="make the function return one, for example a tuple of the fields that "
            "matter, and start the job again",
        )


def _plain(keys: list[Any]) -> bool:
    """Every key, or every part of every tuple, encodes as it is; cheap for whole buffers."""
    kinds = set(map(type, keys))
    if kinds <= _AS_THEY_ARE:
        return True
    tuples = all(issubclass(kind, tuple) for kind in kinds)
    return tuples and set(map(type, chain.from_iterable(keys))) <= _AS_THEY_ARE


def _pick(batch: KeyedBatch, positions: list[int]) -> KeyedBatch:
    records, times, keys, groups = batch.records, batch.times, batch.keys, batch.groups
    return KeyedBatch(
        [records[at] for at in positions],
        None if times is None else [times[at] for at in positions],
        [keys[at] for at in positions],
        [groups[at] for at in positions],
    )
