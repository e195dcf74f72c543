"""What all keyed states share: the row of the current key.

Invariant: a state touches only rows of the backend's current key.
"""

from collections.abc import Callable
from typing import Any

from tidelog.changelog.write_buffer import StateRows
from tidelog.checkpoint.manifest import StateInfo
from tidelog.state.backend import KeyedBackend
from tidelog.state.codec import ValueCodec
from tidelog.state.schema import TupleCodec
from tidelog.state.ttl import TtlSweep, value_expired


class KeyedRows:
    """Rows of one state, addressed by the backend's current key."""

    __slots__ = ("_backend", "_state", "codec", "rows")

    def __init__(
        self,
        backend: KeyedBackend,
        info: StateInfo,
        codec: ValueCodec,
        *,
        scanned: bool = False,
        cached: bool = True,
        expired: Callable[[Any, int], bool] = value_expired,
    ) -> None:
        self._backend = backend
        self._state = info.id.to_bytes(2, "big")
        self.codec = codec
        self.rows: StateRows = backend.rows(
            info, codec.encode, codec.decode, scanned=scanned, cached=cached
        )
        if info.ttl_ms is not None:
            backend.sweeps.append(
                TtlSweep(backend.table, self.rows, self._state, backend.owned, expired).step
            )

    def row(self) -> bytes:
        """Row key of the current key; for scanned states the prefix of its rows."""
        backend = self._backend
        return backend.key_prefix + self._state + backend.key

    def grew(self, elements: int) -> None:
        """Tell the flush trigger about elements added to an existing row."""
        self._backend.grew(elements)

    def position(self) -> int:
        """A number that grows from flush to flush."""
        return self._backend.seqno


def register(
    backend: KeyedBackend,
    name: str,
    kind: str,
    schemas: tuple[TupleCodec, ...],
    ttl_ms: int | None = None,
) -> StateInfo:
    """Register a state under the canonical text of its schemas."""
    texts = tuple(schema.schema for schema in schemas)
    return backend.registry.register(name, kind, texts, ttl_ms)
