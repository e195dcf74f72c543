"""State of an operator that belongs to no key: maps that are the same in every subtask.

Invariants: it is small and lives in memory; a checkpoint holds all of it, in the manifest; what was
restored under a name goes on there until somebody asks for it by that name.
"""

from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import msgspec

from tidelog.checkpoint.manifest import OperatorPiece
from tidelog.errors import OLDER_CHECKPOINT, CorruptObjectError
from tidelog.state.objects.values import ObjectEncoding


class BroadcastState(MutableMapping[Any, Any]):
    """A map that is the same in every subtask, because all of them see the same records."""

    def __init__(self, what: str, entries: Iterable[bytes] = ()) -> None:
        """Raises CorruptObjectError for entries that are none."""
        self._encoding = ObjectEncoding(what)
        with _restoring(what):
            self._values: dict[Any, Any] = dict(map(self._encoding.decode, entries))

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Raises StateSchemaError for a key or value of a type that is not kept."""
        self._encoding.encode([key, value])
        self._values[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._values[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def entries(self) -> tuple[bytes, ...]:
        """The encoded entries, as a checkpoint stores them; raises StateSchemaError."""
        # Encoded anew each time: values may have been changed in place.
        return tuple(map(self._encoding.encode, map(list, self._values.items())))


class OperatorStates:
    """All such states of one subtask; the operators of a chain have names of their own."""

    def __init__(self, restored: Iterable[OperatorPiece] = ()) -> None:
        self._restored = {(piece.operator, piece.name): piece for piece in restored}
        self._used: dict[tuple[str, str], BroadcastState] = {}

    def broadcast(self, operator: str, name: str) -> BroadcastState:
        """A map that every subtask has after a restart as one of them had it; it goes on with what
        was restored for it.
        """
        piece = self._restored.get((operator, name))
        what = f"broadcast state {name!r} of operator {operator!r}"
        state = BroadcastState(what, piece.entries if piece is not None else ())
        self._restored.pop((operator, name), None)
        self._used[operator, name] = state
        return state

    def capture(self) -> tuple[OperatorPiece, ...]:
        """What a checkpoint taken now holds; raises StateSchemaError."""
        used = [
            OperatorPiece(operator, name, "broadcast", state.entries())
            for (operator, name), state in self._used.items()
        ]
        return (*self._restored.values(), *used)


@contextmanager
def _restoring(what: str) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as cause:
        raise CorruptObjectError(
            f"{what} in the manifest",
            expected="elements as this state stores them",
            found=str(cause),
            action=OLDER_CHECKPOINT,
        ) from cause
