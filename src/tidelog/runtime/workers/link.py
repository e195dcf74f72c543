"""Links: messages between two processes of one job, in order.

Invariants: messages arrive in the order they were sent, or the link is lost; both ends run the same
code of the same job, forked from one process, and nobody else can reach the sockets, so messages
are pickles. Pickling keeps every type, and takes half the time of the codec of stored records
(docs/decisions/021-workers.md).
"""

import asyncio
import io
import pickle
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from tidelog.errors import UserFunctionError
from tidelog.runtime.channels.messages import Batch

_HEADER: Final = 8
_BUFFER: Final = 1 << 20
_PLAIN: Final = frozenset({str, bytes, int, float, bool, type(None), tuple})


class Link(Protocol):
    """The port for one end of a link."""

    def send(self, message: Any) -> None:
        """Send a message; it may change afterwards. Raises UserFunctionError for a record that has
        no pickle.
        """

    def close(self) -> None: ...


Received = Callable[[Any], None]
Lost = Callable[[], None]
Connect = Callable[[Received, Lost], Awaitable[Link]]
"""Opens one end: the first function gets each message, the second is called when the other end is
gone."""


class SocketLink(asyncio.Protocol):
    """One end of a pair of connected sockets."""

    def __init__(self, received: Received, lost: Lost) -> None:
        self._received = received
        self._lost = lost
        self._parts = bytearray()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, end: socket.socket, received: Received, lost: Lost) -> "SocketLink":
        """The link over a socket, which belongs to it from now on."""
        for direction in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, direction, _BUFFER)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(lambda: cls(received, lost), sock=end)
        return link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, message: Any) -> None:
        assert self._transport is not None
        data = encode(message)
        self._transport.writelines((len(data).to_bytes(_HEADER, "little"), data))

    def data_received(self, data: bytes) -> None:
        parts = self._parts
        parts += data
        start, end = 0, len(parts)
        with memoryview(parts) as view:
            while end - start >= _HEADER:
                body = start + _HEADER
                upto = body + int.from_bytes(view[start:body], "little")
                if upto > end:
                    break
                self._received(pickle.loads(view[body:upto]))
                start = upto
        del parts[:start]

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def encode(message: Any) -> bytes:
    """A message as bytes; raises UserFunctionError for a record that has no pickle."""
    batch = message[1] if type(message) is tuple and isinstance(message[1], Batch) else None
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
    # Without the memo, which few records need: it is half of the time.
    pickler.fast = batch is not None and _PLAIN.issuperset(map(type, batch.records))
    try:
        pickler.dump(message)
    except Exception as error:
        if batch is None:
            raise
        if pickler.fast:  # something that holds itself
            return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        raise UserFunctionError(
            f"records of type {type(batch.records[0]).__qualname__}, sent to another worker",
            expected="values that Python can pickle",
            found=f"{type(error).__name__}: {error}",
            action="define their class at the top of a module, or run with --workers 1",
        ) from error
    return stream.getvalue()
