"""Stored keys and values become what a changed job declares, before it handles any record.

Invariants: only restored tables are written, never the log, so nothing is durable before the first
checkpoint, which is whole; a migration cut short begins again. Two keys never become one.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, Final

import msgspec

from tidelog.changelog.change import ROW_PREFIX_BYTES, prefix_end
from tidelog.checkpoint.finished import partially_finished
from tidelog.checkpoint.manifest import OperatorState, StateInfo
from tidelog.credentials import value_text
from tidelog.errors import RestoreError
from tidelog.events import Event
from tidelog.options.units import plural
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.channels.partition import ByKey
from tidelog.runtime.node import Node
from tidelog.runtime.user_code import map_all, named_call, user_code
from tidelog.state.event_time import UNKNOWN
from tidelog.state.key_groups import decode_key, first_value
from tidelog.state.objects.values import ObjectEncoding
from tidelog.state.registry import StateMigration, StateRegistry, known_keys, known_values
from tidelog.state.schema.row import row_maker
from tidelog.state.schema.schema import EXPIRY_BYTES, parse_schema
from tidelog.state.schema.types import KnownTypes, Type, type_of_key, types_of_value
from tidelog.state.sessions import SESSION_VALUES
from tidelog.state.timed_rows import BATCHES, KIND, MARKS, batches_of, row_keys, stored_entries
from tidelog.table.port import Table

logger = logging.getLogger(__name__)

_CHUNK: Final = 4096
_TIME_BYTES: Final = 8
_split: Final = msgspec.msgpack.Decoder(list[bytes]).decode


def migrates(head: Node, operator: OperatorState) -> bool:
    """Whether the stored operator, which goes on, has keys or values that the job's one changes.

    Raises StateSchemaError for stored types that are neither declared nor migrated, RestoreError
    where keys could move to a subtask that has finished, or past records that are on their way.
    """
    keys, declared = known_keys(operator.id, operator, head.key_types), head.value_types
    all_types = [keys]
    for info in operator.states:
        if declared is not None and info.kind in _UNTYPED_VALUES:
            all_types.append(known_values(operator.id, info, declared, declared.option))
    for types in all_types:
        types.check_declared()
    if keys.migrates and partially_finished(operator):
        raise RestoreError(
            f"keys of operator {operator.id!r}",
            expected="no subtask of it to have finished, for keys that change move to others",
            found="some that have",
            action="let the job end as it was, or restore a checkpoint from before they finished",
        )
    if keys.migrates:
        _check_one_event_time(operator)
    return any(types.migrates for types in all_types)


def _check_one_event_time(operator: OperatorState) -> None:
    """Raises RestoreError where a key would move to a key group that is further in event time.

    Its timers would fire there at once, before records of the key that barriers have overtaken.
    """
    if all(info.kind not in ("timers", KIND) for info in operator.states):
        return
    # Timers that are firing count as those that have fired, as in another shape.
    reached: set[int | None] = set()
    for state in operator.subtasks:
        times = state.watermark, state.advancing
        reached.add(max(times, key=lambda time: UNKNOWN if time is None else time))
        for part in state.ahead:
            reached.add(part.watermark)
    if len(reached) > 1:
        raise RestoreError(
            f"keys of operator {operator.id!r}, which has timers, windows or a join",
            expected="one event time in all its subtasks, for keys that change move between them",
            found=f"{plural(len(reached), 'event time')}: barriers had overtaken records",
            action="start the job with its old keys and stop it with a savepoint, whose barriers "
            "overtake nothing; then start it with the new keys from there",
        )


@dataclass(slots=True)
class Migration:
    """Changes the restored tables of all subtasks of one operator."""

    registry: StateRegistry
    states: Sequence[StateMigration]
    """The states of a processor that it migrates."""
    key_groups: int
    tables: Sequence[Table]
    """One per subtask, in order; where no keys change, those of any subtasks."""

    def run(self) -> None:
        """Blocking. Raises what the user's functions raise, and RestoreError for their results."""
        changed = 0
        states = self.registry.infos()
        for info, table in product(states, self.tables):
            if info.kind == BATCHES:
                self._unbatch(table, info)
        for info, table in product(states, self.tables):
            if info.kind in _UNTYPED_VALUES:
                changed += self._values(table, info)
        for migration, table in product(self.states, self.tables):
            changed += self._declared_values(table, migration)
        if self.registry.keys.migrates:
            for info, table in product(states, self.tables):
                changed += self._keys(table, info)
        Event.STATE_MIGRATED.log(logger, operator=self.registry.operator, rows=changed)

    def _unbatch(self, table: Table, batches: StateInfo) -> None:
        """Make rows of their own of the records of batches, which may get different keys."""
        (state_id,) = [i.id for i in self.registry.infos() if batches_of(i.name) == batches.name]
        state = state_id.to_bytes(2, "big")
        for chunk in self._chunks(table, batches):
            for row_key, data in chunk.items():
                entries = stored_entries(row_key[:2], row_key[ROW_PREFIX_BYTES:], data)
                records = [record for _, _, (_, _, record) in entries]
                rows = dict(sorted(zip(row_keys(state, entries), records, strict=True)))
                table.write(list(rows), list(rows.values()))
            table.write(list(chunk), [None] * len(chunk))

    def _values(self, table: Table, info: StateInfo) -> int:
        """Change the values of a table; returns how many rows."""
        types = self.registry.value_types(info, "")
        if not types.migrates:
            return 0
        elements, convert = _UNTYPED_VALUES[info.kind], self._converter(types)
        values = ObjectEncoding(types.what)
        changed = 0
        for chunk in self._chunks(table, info):
            changes = {}
            for row_key, old in chunk.items():
                row = values.decode(old)
                if elements is None:
                    row = convert(row)
                else:
                    row[elements] = map_all(convert, row[elements])
                new = values.encode(row)
                if new != old:
                    changes[row_key] = new
            table.write(list(changes), list(changes.values()))
            changed += len(changes)
        return changed

    def _declared_values(self, table: Table, migration: StateMigration) -> int:
        """Change the values of a state that a processor has declared; returns how many rows."""
        convert = _DeclaredValues(self.registry.operator, migration).convert
        changed = 0
        for chunk in self._chunks(table, migration.declared):
            table.write(list(chunk), list(map(convert, chunk.values())))
            changed += len(chunk)
        return changed

    def _converter(self, types: KnownTypes) -> Callable[[Any], Any]:
        declared = types.declared
        assert declared is not None and declared.migrate is not None
        migrate = declared.migrate
        name = f"migrate= of {declared.option} of operator {self.registry.operator!r}"

        def convert(value: Any) -> Any:
            actual_types = set(types_of_value(value))
            if not all(map(types.allows, actual_types)):
                with user_code(name):
                    value = migrate(value)
                if value is None:
                    raise RestoreError(
                        name, expected="a value", found="None", action="return one of that type"
                    )
                actual_types = set(types_of_value(value))
            types.admit(actual_types)
            return value

        return convert

    def _keys(self, table: Table, info: StateInfo) -> int:
        """Move the rows of a table to their new keys; returns how many."""
        types = self.registry.keys
        assert types.declared is not None and types.declared.migrate is not None
        migrate = types.declared.migrate
        name = f"migrate= of key_by before operator {self.registry.operator!r}"
        # The job's own way of a key: to its canonical form, its group and its subtask.
        router = ByKey(lambda row: migrate(row.key), len(self.tables), self.key_groups, name, types)
        row_count = 0
        for chunk in self._chunks(table, info):
            admitted_types: set[Type] = set()
            moving = []
            for row_key, data in chunk.items():
                row = _KeyedRow.of(row_key, data, info)
                kind = type_of_key(row.key)
                if types.allows(kind):
                    admitted_types.add(kind)
                else:
                    moving.append(row)
            types.admit(admitted_types)
            for target, batch in router.route(Batch(moving)) if moving else ():
                assert isinstance(batch, KeyedBatch)
                self._put(self.tables[target], info, batch)
            table.write([row.row_key for row in moving], [None] * len(moving))
            row_count += len(moving)
        return row_count

    def _put(self, table: Table, info: StateInfo, batch: KeyedBatch) -> None:
        state = info.id.to_bytes(2, "big")
        new: dict[bytes, _KeyedRow] = {}
        for row, group, key in zip(batch.records, batch.groups, batch.keys, strict=True):
            row_key = group + state + row.before + key + row.after
            if row_key in new:
                raise self._two_become_one(info, key, [new[row_key].key, row.key])
            new[row_key] = row
        rows, data = sorted(new), []
        for row_key, present in zip(rows, table.get_many(rows), strict=True):
            if present is not None:
                key = row_key[ROW_PREFIX_BYTES + len(new[row_key].before) :]
                raise self._two_become_one(info, key, [new[row_key].key])
            data.append(new[row_key].data)
        table.write(rows, data)

    def _two_become_one(self, info: StateInfo, new: bytes, old: Iterable[Any]) -> RestoreError:
        key = decode_key(first_value(new)[0])
        return RestoreError(
            f"migrated keys of operator {self.registry.operator!r}, state {info.name!r}",
            expected="a key of its own for every stored key",
            found=f"{value_text(key)} for {' and '.join(map(value_text, old))} and another one",
            action="make migrate= tell them apart, or go back to the old keys",
        )

    def _chunks(self, table: Table, info: StateInfo) -> Iterator[dict[bytes, bytes]]:
        """The rows of a state, read some at a time: the table changes meanwhile."""
        for group in range(self.key_groups):
            start = prefix = group.to_bytes(2, "big") + info.id.to_bytes(2, "big")
            end = prefix_end(prefix)
            while chunk := dict(islice(table.scan(start, end), _CHUNK)):
                yield chunk
                start = max(chunk) + b"\x00"


class _DeclaredValues:
    """Values of a processor's state in the new schema; each keeps its time of expiry."""

    def __init__(self, operator: str, migration: StateMigration) -> None:
        stored, declared = migration.stored, migration.declared
        self._what = f"migrate= of state {declared.name!r} of operator {operator!r}"
        self._migrate = migration.migrate
        before = parse_schema(stored.schema[-1])
        self._decode, self._row = before.decode, row_maker(tuple(f.name for f in before.fields))
        self._store = parse_schema(declared.schema[-1], declared.name).store
        self._expiry_bytes = EXPIRY_BYTES if declared.ttl_ms is not None else 0
        self.convert = self._list if declared.kind == "list" else self._value

    def _list(self, data: bytes) -> bytes:
        """A row of a list, which has several elements."""
        return msgspec.msgpack.encode(list(map(self._value, _split(data))))

    def _value(self, data: bytes) -> bytes:
        expiry, value = data[: self._expiry_bytes], data[self._expiry_bytes :]
        with named_call(self._what, lambda: self._what):
            return expiry + self._store(self._migrate(self._row(self._decode(value))))


@dataclass(frozen=True, slots=True)
class _KeyedRow:
    """A stored row, taken apart into its key and the bytes before and after it."""

    row_key: bytes
    data: bytes
    before: bytes
    key: Any
    after: bytes

    @classmethod
    def of(cls, row_key: bytes, data: bytes, info: StateInfo) -> "_KeyedRow":
        timed = info.kind in (KIND, MARKS)
        by_time = timed or (info.kind == "timers" and info.name.endswith("-by-time"))
        key_start = ROW_PREFIX_BYTES + (_TIME_BYTES if by_time else 0)
        key, after = first_value(row_key[key_start:])
        return cls(row_key, data, row_key[ROW_PREFIX_BYTES:key_start], decode_key(key), after)


_UNTYPED_VALUES: Final[Mapping[str, slice | None]] = {
    "aggregate": None,
    "window-aggregate": None,
    "window-records": slice(None),
    "sessions": SESSION_VALUES,
    "earlier-sessions": slice(0, 1),
    "count-window": slice(0, 1),
    KIND: None,
}
"""Kinds of state without a schema. A row is one value of the user (None), or a list with the user's
values in a slice; its other elements are the operator's own.
"""
