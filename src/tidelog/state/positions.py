"""How far a program is in its input: the position of each partition, as state of the key None.

Invariants: positions become state at a checkpoint and not with every step, so noting one costs a
dict's entry; partitions that a dict cannot tell apart are refused.
"""

from collections.abc import Mapping
from typing import Any, Final

from tidelog.errors import ConfigError
from tidelog.ids import CheckpointId
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import MapHandle, stored_entries
from tidelog.state.key_groups import CANONICAL_TYPES, checked_key, decode_key, encode_key
from tidelog.state.objects.values import ObjectEncoding
from tidelog.state.registry import POSITIONS

NO_KEY: Final = encode_key(None)

_MIN_INT: Final = -(1 << 63)
_MAX_INT: Final = (1 << 63) - 1


class Positions:
    """The positions of a program, from its last step to the last durable checkpoint."""

    def __init__(self, backend: KeyedBackend) -> None:
        self._backend = backend
        # Scanned at the start alone: the table needs no more of it than of other rows.
        schemas = "partition binary", "position binary"
        self._state = MapHandle(backend, POSITIONS, *schemas, scanned=False)
        self._values = ObjectEncoding("position")
        self.durable: dict[Any, Any] = {}
        """Positions in the last durable checkpoint, by partition."""
        self.pending: dict[Any, Any] = {}
        """Newer ones that will be with the next checkpoint."""
        self._state_positions: dict[Any, Any] = {}
        self._captured: dict[CheckpointId, dict[Any, Any]] = {}
        """Positions in checkpoints that are not durable yet."""
        self._partitions: dict[Any, Any] = {}
        """Each partition by itself, to know its type."""

    def begin(self) -> None:
        """Read what was restored; raises StateSchemaError as `decoded_positions`."""
        self.durable = decoded_positions(self.stored())
        self._state_positions = dict(self.durable)
        self._partitions = dict(zip(self.durable, self.durable, strict=True))

    def stored(self) -> dict[Any, bytes]:
        """The position of each partition that is stored, encoded."""
        self._backend.use_encoded_key(NO_KEY)
        return {
            decode_key(partition): position
            for (partition,), (position,) in stored_entries(self._state)
        }

    def checked(self, partition: Any, position: Any) -> Any:
        """The position as it will be read; raises where one of both cannot be stored."""
        if partition.__class__ not in CANONICAL_TYPES or partition not in self._partitions:
            self._add(partition)
        elif self._partitions[partition].__class__ is not partition.__class__:
            self._refuse(partition)
        # Most positions are offsets; the program may change others, such as a dict of them.
        if position.__class__ is int and _MIN_INT <= position <= _MAX_INT:
            return position
        return self._values.decode(self._values.encode(position))

    def _add(self, partition: Any) -> None:
        encoded = checked_key("partition", partition)
        if decode_key(encoded) != partition:  # a NaN, by itself or in a tuple
            self._refuse(partition)
        if encoded != checked_key("partition", self._partitions.setdefault(partition, partition)):
            self._refuse(partition)

    def _refuse(self, partition: Any) -> None:
        partitions = self._partitions
        raise ConfigError(
            f"partition {partition!r}",
            expected="one that is equal to itself and, if of another type, to no other partition",
            found=f"{partitions[partition]!r} before" if partition in partitions else "a NaN",
            action="name partitions by texts or by numbers of one type",
        )

    def capture(self, checkpoint: CheckpointId) -> None:
        """Make state of what has moved: a checkpoint is about to capture it."""
        self._backend.use_encoded_key(NO_KEY)
        for partition, position in self.pending.items():
            row = (checked_key("partition", partition),)
            self._state.updateValue(row, (self._values.encode(position),))
        captured = self._state_positions | self.pending
        self._state_positions = self._captured[checkpoint] = captured
        self.pending.clear()

    def completed(self, checkpoint: CheckpointId) -> None:
        for number in [number for number in self._captured if number <= checkpoint]:
            self.durable = self._captured.pop(number)


def decoded_positions(encoded: Mapping[Any, bytes]) -> dict[Any, Any]:
    """Raises StateSchemaError where the program has not imported the class of one."""
    values = ObjectEncoding("position")  # a new one: a notebook may define the class again
    return dict(zip(encoded, map(values.decode, encoded.values()), strict=True))
