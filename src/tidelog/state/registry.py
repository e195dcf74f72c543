"""The states of one operator: names, ids, schemas, and what a restore found.

Invariants: a state's id never changes as long as a checkpoint knows its name; all subtasks of an
operator share one registry; a state is never read with another kind or schema than it was
written with.
"""

from collections.abc import Iterable

from tidelog.checkpoint.manifest import StateInfo
from tidelog.errors import StateSchemaError


class StateRegistry:
    """Hands out state ids and refuses incompatible registrations."""

    def __init__(self, operator: str, restored: Iterable[StateInfo] = ()) -> None:
        self.operator = operator
        self._states = {info.name: info for info in restored}

    def register(
        self, name: str, kind: str, schema: tuple[str, ...], ttl_ms: int | None = None
    ) -> StateInfo:
        """The state's info; the first registration of a new name gives it the next id.

        Raises StateSchemaError when the name is known with another kind or schema.
        """
        known = self._states.get(name)
        if known is None:
            taken = (info.id for info in self._states.values())
            info = StateInfo(max(taken, default=-1) + 1, name, kind, schema, ttl_ms)
        else:
            self._check(known, kind, schema, ttl_ms)
            info = StateInfo(known.id, name, kind, schema, ttl_ms)
        self._states[name] = info
        return info

    def infos(self) -> tuple[StateInfo, ...]:
        """All states ever registered, by id; those a job no longer uses keep their rows."""
        return tuple(sorted(self._states.values(), key=lambda info: info.id))

    def _check(
        self, known: StateInfo, kind: str, schema: tuple[str, ...], ttl_ms: int | None
    ) -> None:
        stored = _describe(known.kind, known.schema, known.ttl_ms)
        wanted = _describe(kind, schema, ttl_ms)
        if stored != wanted:
            raise StateSchemaError(
                f"state {known.name!r} of operator {self.operator!r}",
                expected=f"{stored}, as the checkpoint has it",
                found=wanted,
                action="use the stored definition, or give the changed state a new name",
                retry_safe=True,
            )


def _describe(kind: str, schema: tuple[str, ...], ttl_ms: int | None) -> str:
    # A TTL may change its length; switching it on or off changes the stored bytes.
    suffix = " with TTL" if ttl_ms is not None else ""
    return f"{kind} state of ({'; '.join(schema)}){suffix}"
