"""State of an operator that belongs to no key: lists, unions and broadcast maps.

Invariants: it is small and lives in memory; a checkpoint holds all of it, in the manifest; what was
restored under a name goes on there until somebody asks for it by that name.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import msgspec

from tidelog.checkpoint.finished import partially_finished
from tidelog.checkpoint.manifest import OperatorPiece, OperatorState
from tidelog.errors import OLDER_CHECKPOINT, CorruptObjectError, StateSchemaError
from tidelog.state.objects.values import ObjectEncoding

OperatorStateKind = Literal["list", "union", "broadcast"]
S = TypeVar("S")


class ListedState:
    """Elements of one subtask. After a restart a list is dealt out, a union given to everyone."""

    def __init__(self, what: str, entries: Iterable[bytes] = ()) -> None:
        """Raises CorruptObjectError for entries that are none."""
        self._encoding = ObjectEncoding(what)
        with _restoring(what):
            self._elements = list(map(self._encoding.decode, entries))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def update(self, elements: Iterable[Any]) -> None:
        """Hold these elements and no others; raises StateSchemaError for types not kept."""
        elements = list(elements)
        self._encoding.encode_many(elements)
        self._elements = elements

    def entries(self) -> tuple[bytes, ...]:
        """The encoded entries, as a checkpoint stores them; raises StateSchemaError."""
        return tuple(self._encoding.encode_many(self._elements))


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
        self._used: dict[tuple[str, str], tuple[OperatorStateKind, Any]] = {}

    def listed(self, operator: str, name: str) -> ListedState:
        """A list state: after a restart its elements are somewhere, each once."""
        return self._add(ListedState, operator, name, "list")

    def union(self, operator: str, name: str) -> ListedState:
        """A union state: after a restart every subtask has the elements of all.

        As long as some subtasks of the operator have finished and others have not, no checkpoint
        completes: what the finished ones held would be missing.
        """
        return self._add(ListedState, operator, name, "union")

    def broadcast(self, operator: str, name: str) -> BroadcastState:
        """A broadcast state: after a restart every subtask has what one of them had."""
        return self._add(BroadcastState, operator, name, "broadcast")

    def capture(self) -> tuple[OperatorPiece, ...]:
        """What a checkpoint taken now holds; raises StateSchemaError."""
        used = [
            OperatorPiece(operator, name, kind, state.entries())
            for (operator, name), (kind, state) in self._used.items()
        ]
        return (*self._restored.values(), *used)

    def _add(
        self,
        new: Callable[[str, Iterable[bytes]], S],
        operator: str,
        name: str,
        kind: OperatorStateKind,
    ) -> S:
        """A new state, which goes on with what was restored for it."""
        what, piece = (
            f"state {name!r} of operator {operator!r}",
            self._restored.get((operator, name)),
        )
        if piece is not None and piece.kind != kind:
            raise StateSchemaError(
                what,
                expected=f"a {piece.kind} state, as the checkpoint has it",
                found=f"a {kind} state",
                action="give it back its kind, or another name",
            )
        state = new(f"{kind} {what}", piece.entries if piece is not None else ())
        self._restored.pop((operator, name), None)
        self._used[operator, name] = (kind, state)
        return state


def union_in_part(operators: Iterable[OperatorState]) -> str | None:
    """Why a checkpoint must not be: a union of which the finished subtasks' part is missing."""
    for operator in operators:
        names: set[str] = set()
        done: list[str] = []
        for subtask in operator.subtasks:
            unions = (piece for piece in subtask.operator_state if piece.kind == "union")
            names.update(f"{piece.name!r} of operator {piece.operator!r}" for piece in unions)
            if subtask.finished:
                done.append(str(subtask.index))
        if names and partially_finished(operator):
            return (
                f"union state {', '.join(sorted(names))}: subtask {', '.join(done)} finished and "
                "others did not, so a restart would miss a part of it"
            )
    return None


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
