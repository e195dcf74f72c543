"""The object-store port: the seven calls tidelog needs of a store.

Invariants every adapter keeps (`tests/unit/storage/conformance.py` proves them):
- a name is visible with all its bytes or not at all; after `put` or `create` returns, the
  object survives a crash of this process and, on disk, of the machine;
- `create` has exactly one winner however many callers race;
- `list` yields names in ascending byte order, strictly after `start_after`;
- `delete` of a missing object is success;
- only errors of `tidelog.errors` leave an adapter.

Names are relative to the store's root, `/`-separated, ASCII, without `.` or `..` parts.
"""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from tidelog.storage.metrics import RequestMetrics


class ObjectInfo(msgspec.Struct, frozen=True):
    """A stored object's name and size in bytes."""

    name: str
    size: int


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

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """All objects whose name starts with `prefix`, in ascending order, after `start_after`."""
        ...

    async def head(self, name: str) -> ObjectInfo:
        """Size of `name` in bytes; raises ObjectNotFoundError."""
        ...

    async def delete(self, name: str) -> None:
        """Remove `name`; success also when it is already gone."""
        ...

    async def close(self) -> None:
        """Release connections; the store cannot be used afterwards."""
        ...
