"""Partitioners: which subtask of the next operator gets a record.

Invariant: after `key_by` a record goes to the subtask that owns its key group, and nowhere else
(`state.keys`).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Any

import google_crc32c

from tidelog.errors import UserFunctionError
from tidelog.events import Event
from tidelog.runtime.channels.copies import copy_of
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.user_code import map_all, user_code
from tidelog.state.key_groups import (
    CANONICAL_TYPES,
    KEY_TYPES,
    NoKeyError,
    canonical_key,
    encode_canonical,
    encode_key,
    subtask_of,
)
from tidelog.state.schema.sides import KeySides
from tidelog.state.schema.types import KnownTypes, signature, types_of_keys

logger = logging.getLogger(__name__)

Routed = Iterator[tuple[int, Batch]]


class Partitioner(ABC):
    """Splits a buffer among `targets` subtasks."""

    name = "exchange"
    """The name that errors and long calls are reported under."""
    divisible = False
    """Whether a buffer may come in pieces; it has a function of the user to call."""

    @abstractmethod
    def route(self, batch: Batch) -> Routed: ...

    def target_of_marker(self, turn: int, targets: int) -> int:
        """The subtask that gets a marker in this turn: one that gets records as well."""
        return turn % targets


class Forward(Partitioner):
    """All buffers to one subtask, so that they stay in order."""

    def __init__(self, subtask: int) -> None:
        self._subtask = subtask

    def route(self, batch: Batch) -> Routed:
        yield self._subtask, batch

    def target_of_marker(self, turn: int, targets: int) -> int:
        return self._subtask


class Rebalance(Partitioner):
    """Whole buffers in turn; a later one may be handled first."""

    def __init__(self, targets: int, start: int) -> None:
        self._targets = targets
        self._next = start % targets

    def route(self, batch: Batch) -> Routed:
        target, self._next = self._next, (self._next + 1) % self._targets
        yield target, batch


class Broadcast(Partitioner):
    """Every buffer to all subtasks."""

    def __init__(self, targets: int) -> None:
        self._targets = targets

    def route(self, batch: Batch) -> Routed:
        for target in range(self._targets - 1):
            yield target, copy_of(batch)
        yield self._targets - 1, batch


class ByKey(Partitioner):
    """Sends a record to the subtask that owns the key group of its key.

    Raises UserFunctionError for what cannot be a key, and StateSchemaError for a key of a type that
    does not go with those which `types` knows.
    """

    divisible = True

    def __init__(
        self,
        key_of: Callable[[Any], Any],
        targets: int,
        key_groups: int,
        name: str = "key_by",
        types: KnownTypes | None = None,
        side: int = 0,
        sides: KeySides | None = None,
    ) -> None:
        """`sides` are those of the join that the keys are for, as far as they are known."""
        self._key_of = key_of
        self._side = side
        self._sides = sides or KeySides()
        self.name = name
        self._types = types or KnownTypes("keys")
        self._canonical_signatures: set[Hashable] = set()
        """Signatures of keys of admitted types that are canonical as they are."""
        self._targets = targets
        self._key_groups = key_groups
        self._prefixes = [group.to_bytes(2, "big") for group in range(key_groups)]
        self._owner = [subtask_of(group, key_groups, targets) for group in range(key_groups)]

    def route(self, batch: Batch) -> Routed:
        crc, count = google_crc32c.value, self._key_groups
        with user_code(self.name):
            keys = self._encoded(map_all(self._key_of, batch.records))
        numbers = [crc(key) % count for key in keys]
        prefixes = self._prefixes
        groups = [prefixes[number] for number in numbers]
        keyed = KeyedBatch(batch.records, batch.times, keys, groups, self._side)
        if self._targets == 1:
            yield 0, keyed
            return
        owner = self._owner
        chosen: list[list[int]] = [[] for _ in range(self._targets)]
        for position, number in enumerate(numbers):
            chosen[owner[number]].append(position)
        for target, positions in enumerate(chosen):
            if positions:
                yield target, keyed.picked(positions)

    def _encoded(self, keys: list[Any]) -> list[bytes]:
        kinds = signature(keys)
        if kinds not in self._canonical_signatures:
            keys = self._checked(keys, kinds)
        try:
            return list(map(encode_key, keys))
        except (OverflowError, UnicodeEncodeError):
            return [self._stored_form(encode_canonical, key) for key in keys]

    def _checked(self, keys: list[Any], kinds: Hashable) -> list[Any]:
        """The keys in canonical form; raises for types that are not those of admitted keys."""
        plain = _plain(keys)
        if not plain:
            keys = [self._stored_form(canonical_key, key) for key in keys]
        types = types_of_keys(keys)
        self._types.admit(types)
        if self._sides.add(self._side, types):
            Event.KEYS_APART.log(logger, where=self.name, types=self._sides.disjoint_types)
        if plain and kinds is not None:
            self._canonical_signatures.add(kinds)
        return keys

    def _stored_form(self, form: Callable[[Any], Any], key: Any) -> Any:
        try:
            return form(key)
        except NoKeyError as error:
            raise UserFunctionError(
                self.name,
                expected=f"a key that is {KEY_TYPES}",
                found=str(error),
                action="make the function return one, for example a tuple of the fields that "
                "matter, and start the job again",
            ) from error.__cause__


def _plain(keys: list[Any]) -> bool:
    """Every key, or every part of every tuple, encodes as it is."""
    kinds = set(map(type, keys))
    if kinds <= CANONICAL_TYPES:
        return True
    tuples = all(issubclass(kind, tuple) for kind in kinds)
    return tuples and set(map(type, chain.from_iterable(keys))) <= CANONICAL_TYPES
