"""The first record of each key and id within a time to live.

Invariant: an id is forgotten a time to live after its first record, by processing time; later
records of it change nothing, so they do not keep it.
"""

from collections.abc import Callable, Hashable, Iterable
from itertools import compress
from typing import Any, Final, cast

from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.user_code import map_all
from tidelog.state.handles.keyed import MapHandle
from tidelog.state.key_groups import canonical_key, checked_key
from tidelog.state.schema.types import signature, types_of_keys

ID_OPTION: Final = "deduplicate(..., id_type=...)"


class Deduplicate(Operator):
    """Lets the first record of each key and id pass."""

    def __init__(self, id_of: Callable[[Any], Any] | None, ttl_ms: int) -> None:
        self._id_of = id_of
        self._ttl_ms = ttl_ms

    def open(self, context: OperatorContext) -> None:
        self._ids = MapHandle(context.backend, "seen", "id binary", "seen boolean", self._ttl_ms)
        registry = context.backend.registry
        # A state without rows, which has the types of the ids that the rows of "seen" are of.
        self._types = registry.value_types(
            registry.register("$ids", "ids", ()), ID_OPTION, numbers_alike=False
        )
        self._admitted: set[Hashable] = set()
        """Signatures of ids of admitted types."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed, entries = cast(KeyedBatch, batch), self._ids
        ids: list[Any] = [None] * len(keyed.records)
        if self._id_of is not None:
            ids = map_all(self._id_of, keyed.records)
        rows = [
            entries.keyed.row_of(group, key)
            + entries.user_key.store((checked_key("the id", record_id),))
            for group, key, record_id in zip(keyed.groups, keyed.keys, ids, strict=True)
        ]
        self._admit(ids)
        codec = entries.keyed.codec
        new: dict[bytes, Any] = {}
        first: list[bool] = []
        for row, entry in zip(rows, entries.keyed.rows.get_many(rows), strict=True):
            is_new = row not in new and (entry is None or codec.read(entry) is None)
            first.append(is_new)
            if is_new:
                new[row] = codec.hold((True,))
        if not new:
            return ()
        entries.keyed.rows.put_many(new)
        times = None if keyed.times is None else list(compress(keyed.times, first))
        return (Batch(list(compress(keyed.records, first)), times),)

    def _admit(self, ids: list[Any]) -> None:
        """Raises StateSchemaError for types that are not those of the ids that are stored."""
        kinds = signature(ids)
        if kinds is None or kinds not in self._admitted:
            self._types.admit(types_of_keys(list(map(canonical_key, ids))))
            if kinds is not None:
                self._admitted.add(kinds)
