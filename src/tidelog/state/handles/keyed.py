"""What all keyed states share: the row of the current key.

Invariant: a state touches only rows of the backend's current key.
"""

from tidelog.changelog.state_rows import StateRows
from tidelog.checkpoint.manifest import StateInfo
from tidelog.state.backend import KeyedBackend
from tidelog.state.schema.codec import ValueCodec
from tidelog.state.schema.schema import TupleCodec
from tidelog.state.ttl import Expired, TtlSweep, value_expired


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
        expired: Expired = value_expired,
    ) -> None:
        self._backend = backend
        self._state = info.id.to_bytes(2, "big")
        self.codec = codec
        self.rows: StateRows = backend.rows(
            info, codec.encode, codec.decode, scanned=scanned, cached=cached
        )
        if info.ttl_ms is not None:
            backend.sweep(
                TtlSweep(backend.table, self.rows, self._state, backend.owned, info.ttl_ms, expired)
            )

    def row(self) -> bytes:
        """Row key of the current key; for scanned states the prefix of its rows."""
        backend = self._backend
        return backend.key_prefix + self._state + backend.key

    def row_of(self, prefix: bytes, key: bytes) -> bytes:
        """Row key of an encoded key in the key group that `prefix` stands for."""
        return prefix + self._state + key


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
