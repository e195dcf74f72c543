"""The object-store port: the eight calls tidelog needs of a store.

Invariants every adapter keeps (`tests/unit/storage/conformance.py` proves them):
- a name is visible with all its bytes or not at all; after `put` or `create` returns, the
  object survives a crash of this process and, on disk, of the machine;
- `create` has exactly one winner however many callers race;
- `list` yields names in ascending byte order, strictly after `start_after`;
- `delete` of a missing object is success;
- only errors of `tidelog.errors` leave an adapter.

Counters: `calls` counts what the caller asked for and `attempts` what was sent, so attempts =
calls + retries + hedges for every operation once no call is under way. Each part of `get_parts` is
a get of its own there.

Names are relative to the store's root, `/`-separated, ASCII, without `.` or `..` parts.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, cast

import msgspec

from tidelog.concurrency import in_time
from tidelog.effects import Effects
from tidelog.errors import ObjectExistsError, ObjectNotFoundError

_RECENT: Final = 1024


@dataclass(slots=True)
class OperationMetrics:
    """Counters of one operation; latencies are whole calls, retries included, in seconds."""

    calls: int = 0
    attempts: int = 0
    retries: int = 0
    hedges: int = 0
    hedge_wins: int = 0
    failures: int = 0
    seconds: float = 0.0
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))


@dataclass(slots=True)
class RequestMetrics:
    """Counters per operation of the port, and payload bytes both ways.

    A failure is a call that raised anything but the answers "absent" and "exists".
    """

    put: OperationMetrics = field(default_factory=OperationMetrics)
    create: OperationMetrics = field(default_factory=OperationMetrics)
    get: OperationMetrics = field(default_factory=OperationMetrics)
    list: OperationMetrics = field(default_factory=OperationMetrics)
    head: OperationMetrics = field(default_factory=OperationMetrics)
    delete: OperationMetrics = field(default_factory=OperationMetrics)
    segment_attempts: int = 0
    """Attempts at writing segments of the log."""
    attempts_per_segment: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    bytes_written: int = 0
    bytes_read: int = 0


class ObjectInfo(msgspec.Struct, frozen=True):
    """A stored object's name and size in bytes."""

    name: str
    size: int


class ObjectPart(NamedTuple):
    """`length` bytes of the object `name` from `start` on; the object must have all of them."""

    name: str
    start: int
    length: int


class Cipher(Protocol):
    """How an encrypted store's objects are kept elsewhere, such as on a local disk."""

    async def seal(self, name: str, data: bytes) -> bytes:
        """The bytes to keep of the object `name`."""
        ...

    async def open(self, name: str, sealed: bytes) -> bytes:
        """The object's content; raises CorruptObjectError for other bytes than were kept."""
        ...


class ObjectStore(Protocol):
    """An object store rooted at one URL."""

    url: str

    @property
    def cipher(self) -> Cipher | None:
        """How copies of its objects are encrypted; None for a store that is not encrypted."""
        ...

    @property
    def request_metrics(self) -> RequestMetrics | None:
        """What was asked of it so far; None where nobody counts."""
        ...

    async def put(self, name: str, data: bytes) -> None:
        """Write or overwrite `name`. Used only for names that one writer owns."""
        ...

    async def create(self, name: str, data: bytes) -> None:
        """Write `name` if it is absent.

        `data` must not be empty. Raises ObjectExistsError when the name is taken, which can also
        mean that an earlier attempt of this very call got through: the caller reads it back.
        """
        ...

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read `length` bytes from `start` (to the end when None); raises ObjectNotFoundError.

        A range past the end returns what there is; the caller checks lengths and checksums.
        """
        ...

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> "Sequence[bytes | None]":
        """Parts of objects, asked for side by side: what `get` returns for each, for less work.

        None for each that has not come after `patience_s` seconds: it is asked for no more.
        """
        ...

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """All objects whose name starts with `prefix`, in ascending order, after `start_after`; one
        that is written or deleted meanwhile may or may not appear.
        """
        ...

    async def head(self, name: str) -> ObjectInfo:
        """Size of `name` in bytes; raises ObjectNotFoundError."""
        ...

    async def delete(self, name: str) -> None:
        """Remove `name`; success also when it is already gone."""
        ...

    def apart(self, effects: Effects) -> "ObjectStore":
        """The same store for another event loop, where `effects` hold; it is closed there, and this
        one stays open.
        """
        ...

    async def close(self) -> None:
        """Release connections; the store cannot be used afterwards."""
        ...


class PlainStore:
    """What the adapters have in common: they count no requests and encrypt nothing."""

    request_metrics: Final = None
    cipher: Final = None

    def apart(self, effects: Effects) -> ObjectStore:
        """Itself: most answer in any event loop."""
        return cast(ObjectStore, self)

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        """A request for each."""
        return await get_each(cast(ObjectStore, self), parts, patience_s)

    async def close(self) -> None:
        """Nothing to release."""


async def get_each(
    store: ObjectStore, parts: Sequence[ObjectPart], patience_s: float | None = None
) -> Sequence[bytes | None]:
    """Parts of objects, each by a call of `get`, side by side."""
    return await in_time([store.get(*part) for part in parts], patience_s)


async def create_once(store: ObjectStore, name: str, data: bytes) -> None:
    """Create `name`, or find that an attempt whose answer was lost had created it.

    `data` must carry its author, so that equal bytes mean the same write. Raises ObjectExistsError
    when another author won: read the name to see who. Any other error, such as
    StoreUnreachableError, leaves the outcome open; calling again with the same data settles it.
    """
    try:
        await store.create(name, data)
    except ObjectExistsError:
        # Deleted since, perhaps: then the one who deletes create-once objects rules here.
        with suppress(ObjectNotFoundError):
            if await store.get(name) == data:
                return
        raise
