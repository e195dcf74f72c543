"""The states of one operator: names, ids, schemas, and what a restore found.

Invariants: a state's id never changes as long as a checkpoint knows its name; all subtasks of an
operator share one registry; a state is never read with a definition that does not fit what is
stored (`state.evolution`).
"""

from collections.abc import Iterable

from tidelog.checkpoint.manifest import StateInfo
from tidelog.errors import StateSchemaError
from tidelog.state.evolution import objection


class StateRegistry:
    """Hands out state ids and refuses incompatible registrations."""

    def __init__(self, operator: str, restored: Iterable[StateInfo] = ()) -> None:
        self.operator = operator
        self._states = {info.name: info for info in restored}

    def register(
        self, name: str, kind: str, schema: tuple[str, ...], ttl_ms: int | None = None
    ) -> StateInfo:
        """The state's info; the first registration of a new name gives it the next id.

        Raises StateSchemaError when the name is known with a definition that does not go with it.
        """
        known = self._states.get(name)
        if known is None:
            taken = (info.id for info in self._states.values())
            info = StateInfo(max(taken, default=-1) + 1, name, kind, schema, ttl_ms)
        else:
            info = StateInfo(known.id, name, kind, schema, ttl_ms)
            self._check(known, info)
        self._states[name] = info
        return info

    def infos(self) -> tuple[StateInfo, ...]:
        """All states ever registered, by id; those a job no longer uses keep their rows."""
        return tuple(sorted(self._states.values(), key=lambda info: info.id))

    def _check(self, known: StateInfo, wanted: StateInfo) -> None:
        reason = objection(known, wanted)
        if reason is not None:
            raise StateSchemaError(
                f"state {known.name!r} of operator {self.operator!r}",
                expected=f"{_describe(known)}, as the checkpoint has it, or a definition that can "
                "read its values",
                found=f"{_describe(wanted)}: {reason}",
                action="use the stored definition, or give the changed state a new name",
                retry_safe=True,
            )


def _describe(info: StateInfo) -> str:
    suffix = " with TTL" if info.ttl_ms is not None else ""
    return f"{info.kind} state of ({'; '.join(info.schema)}){suffix}"
