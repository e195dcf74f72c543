"""The states of one operator: names, ids, schemas, and what a restore found.

Invariants: a state's id never changes as long as a checkpoint knows its name; all subtasks of an
operator share one registry; a state is never read with a definition that does not fit what is
stored (`state.evolution`).
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from tidelog.checkpoint.manifest import OperatorState, StateInfo
from tidelog.errors import StateSchemaError
from tidelog.state.schema.sides import KeySides
from tidelog.state.schema.types import DeclaredType, KnownTypes, parse_type

POSITIONS: Final = "$position"
"""The map of a program with a loop of its own from partitions to positions, both encoded."""


class Definition(NamedTuple):
    """A state by its name, its kind and its schema."""

    name: str
    kind: str
    schema: tuple[str, ...]


class StateMigration(NamedTuple):
    """How stored values of a state become those of its new schema."""

    stored: StateInfo
    declared: StateInfo
    migrate: Callable[[Any], Any]


class StateRegistry:
    """Hands out state ids and refuses incompatible registrations."""

    def __init__(
        self,
        operator: str,
        restored: Iterable[StateInfo] = (),
        keys: KnownTypes | None = None,
        values: DeclaredType | None = None,
    ) -> None:
        self.operator = operator
        self.keys = keys or KnownTypes(f"keys of operator {operator!r}")
        self.key_sides = KeySides()
        self._declared = values
        self._states = {info.name: info for info in restored}
        self._values: dict[str, KnownTypes] = {}
        self._restored_names = frozenset(self._states)
        self._registered_names: set[str] = set()

    def register(
        self,
        name: str,
        kind: str,
        schema: tuple[str, ...],
        ttl_ms: int | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> StateInfo:
        """The state's info; the first registration of a new name gives it the next id.

        `migrate` makes a value of the schema of one that is stored with another schema. Raises
        StateSchemaError when the name is known with a definition that does not go with it.
        """
        self._registered_names.add(name)
        registered = self._states.get(name)
        if registered is None:
            ids = (info.id for info in self._states.values())
            info = StateInfo(max(ids, default=-1) + 1, name, kind, schema, ttl_ms)
        else:
            info = StateInfo(registered.id, name, kind, schema, ttl_ms, registered.types)
            self._check(registered, info, migrate)
        self._states[name] = info
        return info

    def adopt(self, infos: Iterable[StateInfo], keys: Iterable[str]) -> None:
        """Take over what another process has registered, and the types of its keys and values.

        Raises StateSchemaError for a state that does not go with what is known.
        """
        self.keys.adopt(keys)
        for info in infos:
            info_here = self.register(info.name, info.kind, info.schema, info.ttl_ms)
            if info_here.id != info.id:
                raise StateSchemaError(
                    f"state {info.name!r} of operator {self.operator!r}",
                    expected="all workers to declare the states of an operator in one order",
                    found=f"it is number {info_here.id} in one worker and {info.id} in another",
                    action="declare all states in `open`, always in the same order",
                )
            if info.types:
                self.value_types(info, "value_type").adopt(info.types)

    def stores(self, name: str) -> bool:
        """Whether the checkpoint has a state of this name."""
        return name in self._restored_names

    def check_renamed(self, allowed: Collection[str]) -> tuple[str, ...]:
        """The stored states that the operator no longer has, once it has registered all it has.

        Raises StateSchemaError when it has new ones instead: a state under another name would
        begin empty. `allowed` has the operator, or `OPERATOR/STATE`, where that is meant.
        """
        if not self._registered_names:  # it has finished, and registers nothing any more
            return ()
        dropped = _declared_names(self._restored_names - self._registered_names)
        new = _declared_names(self._registered_names - self._restored_names)
        lost = [name for name in dropped if f"{self.operator}/{name}" not in allowed]
        if lost and new and self.operator not in allowed:
            raise StateSchemaError(
                f"states of operator {self.operator!r}",
                expected=f"{', '.join(map(repr, lost))}, as the checkpoint has it",
                found=f"{', '.join(map(repr, new))} instead, which would begin empty",
                action="give the state its name back; or, where another state is meant, leave "
                f"it out with --allow-non-restored-state {self.operator}/{lost[0]} "
                "(JobConfig.allow_non_restored_state): its rows stay in the store, unread",
            )
        return tuple(dropped)

    def value_types(
        self, info: StateInfo, option: str, *, numbers_alike: bool = True
    ) -> KnownTypes:
        """The types of the values of a state without a schema; `option` is what declares them."""
        if info.name not in self._values:
            types = known_values(self.operator, info, self._declared, option)
            types.numbers_alike = numbers_alike
            self._values[info.name] = types
        return self._values[info.name]

    def infos(self) -> tuple[StateInfo, ...]:
        """All states ever registered, by id; those a job no longer uses keep their rows."""
        return tuple(sorted(map(self._with_types, self._states.values()), key=lambda info: info.id))

    def _with_types(self, info: StateInfo) -> StateInfo:
        types = self._values.get(info.name)
        return info if types is None else msgspec.structs.replace(info, types=types.names())

    def _check(
        self, before: StateInfo, after: StateInfo, migrate: Callable[[Any], Any] | None
    ) -> None:
        # A job that begins has nothing stored to compare.
        from tidelog.state.schema.evolution import DECLARED, objection  # noqa: PLC0415

        reason = objection(before, after)
        if reason is not None:
            # An operator of the library names its states itself.
            renaming = (
                "the changed state a new name; for other fields of its values a processor can give "
                "it migrate=, a function that makes a new value of a stored one"
                if before.kind in DECLARED
                else "the operator another name= and drop what it has with "
                f"--allow-non-restored-state {self.operator} (JobConfig.allow_non_restored_state)"
            )
            raise StateSchemaError(
                f"state {before.name!r} of operator {self.operator!r}",
                expected=f"{_describe(before)}, as the checkpoint has it, or a definition that can "
                "read its values",
                found=f"{_describe(after)}: {reason}",
                action=f"use the stored definition, or give {renaming}",
                retry_safe=True,
            )


class Rehearsal(StateRegistry):
    """Learns before a job runs what an operator registers, and which stored states it migrates."""

    def __init__(
        self,
        operator: str,
        restored: Iterable[StateInfo],
        keys: KnownTypes,
        values: DeclaredType | None,
    ) -> None:
        super().__init__(operator, restored, keys, values)
        self.migrations: dict[str, StateMigration] = {}

    def _check(
        self, before: StateInfo, after: StateInfo, migrate: Callable[[Any], Any] | None
    ) -> None:
        if migrate is not None and before.schema[-1] != after.schema[-1]:
            self.migrations[after.name] = StateMigration(before, after, migrate)
            # The values may be anything then; the keys of a map are those that are stored.
            values = after.schema[-1]
            before = msgspec.structs.replace(before, schema=(*before.schema[:-1], values))
        super()._check(before, after, migrate)


def known_keys(
    operator: str, restored: OperatorState | None, declared: DeclaredType | None
) -> KnownTypes:
    """The types of the keys of an operator, as its checkpoint and the job have them."""
    types = frozenset(map(parse_type, restored.key_types if restored else ()))
    return KnownTypes(f"keys of operator {operator!r}", types, declared)


def known_values(
    operator: str, info: StateInfo, declared: DeclaredType | None, option: str
) -> KnownTypes:
    """The types of the values of a state, as its checkpoint and the job have them."""
    return KnownTypes(
        f"values of operator {operator!r}",
        frozenset(map(parse_type, info.types)),
        declared,
        numbers_alike=True,
        option=declared.option if declared else option,
    )


def _declared_names(names: Iterable[str]) -> list[str]:
    """Those of states that a program declares."""
    return sorted(name for name in names if not name.startswith("$"))


def _describe(info: StateInfo) -> str:
    suffix = " with TTL" if info.ttl_ms is not None else ""
    return f"{info.kind} state of ({'; '.join(info.schema)}){suffix}"
