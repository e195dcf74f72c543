"""Links, messages between two processes of one job, in order; and the channels that they carry.

Invariants: messages arrive in the order they were sent, or the link is lost; both ends run the same
code of the same job, forked from one process, and nobody else can reach the sockets, so messages
are pickles. Pickling keeps every type, and takes half the time of the codec of stored records
(docs/decisions/021-workers.md).

A producer sends a buffer only when the consumer's end has room for it, which its credit says
(Flink's credit-based flow control), so no socket holds more than the consumer takes; what is in a
socket belongs to the consumer, and is in-flight data there when a barrier overtakes.
"""

import asyncio
import io
import pickle
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import filterfalse
from typing import Any, Final, Protocol

from tidelog.errors import InvariantError, UserFunctionError
from tidelog.runtime.channels.channel import BufferPool, Channel, ChannelAddress, Consumer
from tidelog.runtime.channels.messages import Batch, Message
from tidelog.runtime.subtasks.vertices import Share
from tidelog.state.schema.row import Row, row_maker

_HEADER: Final = 8
_BUFFER: Final = 1 << 20
_PLAIN: Final = frozenset({str, bytes, int, float, bool, type(None), tuple})


class Link(Protocol):
    """The port for one end of a link."""

    def send(self, message: Any) -> None:
        """Send a message; it may change afterwards. A link that is lost takes none. Raises
        UserFunctionError for a record that has no pickle.
        """

    def close(self) -> None: ...


Received = Callable[[Any], None]
Lost = Callable[[Exception | None], None]
Connect = Callable[[Received, Lost], Awaitable[Link]]
"""Opens one end: the first function gets each message, the second is called when the other end is
gone, with the error if it is lost by one: of the system, or raised as a message was received."""


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
        if self._transport.is_closing():
            return  # lost; Python 3.12 and 3.13 raise TypeError instead
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
                self._received(decode(view[body:upto]))
                start = upto
        del parts[:start]

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(error)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def encode(message: Any) -> bytes:
    """A message as bytes; raises UserFunctionError for a record that has no pickle."""
    batch = message[1] if type(message) is tuple and isinstance(message[1], Batch) else None
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
    if batch is not None:
        kinds = set(map(type, batch.records))
        if rows := _rows_of_one_class(kinds):
            message = message[0], _AsTuples(batch)
        # Without the memo, which few records need: it is half of the time.
        pickler.fast = rows or kinds <= _PLAIN
    try:
        pickler.dump(message)
    except Exception as error:
        if batch is None:
            raise
        if not pickler.fast:
            raise _without_pickle(batch, error) from error
        return _remembering(message[0], batch)
    return stream.getvalue()


def _remembering(address: ChannelAddress, batch: Batch) -> bytes:
    """A buffer with something that holds itself, or that has no pickle."""
    try:
        return pickle.dumps((address, batch), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise _without_pickle(batch, error) from error


def _without_pickle(batch: Batch, error: Exception) -> UserFunctionError:
    record = next(filterfalse(_has_pickle, batch.records), batch.records[0])
    return UserFunctionError(
        f"a record of type {type(record).__qualname__}, sent to another worker",
        expected="values that Python can pickle",
        found=f"{type(error).__name__}: {error}",
        action="define the classes of what it holds at the top of a module, or run with "
        "--workers 1",
    )


def _has_pickle(record: Any) -> bool:
    try:
        pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return False
    return True


def decode(data: bytes | memoryview) -> Any:
    """The message of these bytes; raises UserFunctionError for a record that does not unpickle."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise UserFunctionError(
            "a record that was sent to another worker",
            expected="one that Python can make again of its pickle",
            found=f"{type(error).__name__}: {error}",
            action="give its class a __reduce__ that fits, or run with --workers 1",
        ) from error


def _rows_of_one_class(kinds: set[type]) -> bool:
    if len(kinds) != 1:
        return False
    (kind,) = kinds
    return issubclass(kind, Row) and kind.__module__ == Row.__module__ and kind._fields != ()


class _AsTuples:
    """A buffer of rows of one class: pickled, they would be made one by one, by their names."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __reduce__(self) -> tuple[Any, ...]:
        batch = self._batch
        names, rows = type(batch.records[0])._fields, list(map(tuple, batch.records))
        return _of_tuples, (replace(batch, records=rows), names)


def _of_tuples(batch: Batch, names: tuple[str, ...]) -> Batch:
    batch.records = list(map(row_maker(names), batch.records))
    return batch


class SendingChannel(Channel):
    """The producer's end of a channel to another worker: it has the backlog."""

    __slots__ = ("_address", "_link")

    def __init__(self, address: ChannelAddress, buffers: int, pool: BufferPool, link: Link) -> None:
        super().__init__(_Nobody(), address.number, buffers, pool)
        self._address = tuple(address)  # plain: it is pickled with each message
        self._link = link

    def give_room(self) -> None:
        """The consumer has taken a buffer."""
        self._room += 1
        self._move()

    def _arrive(self, message: Message) -> None:
        self._link.send((self._address, message))


class ReceivingChannel(Channel):
    """The consumer's end of a channel from another worker: it has the input."""

    __slots__ = ("_address", "_link", "_withheld")

    def __init__(self, consumer: Consumer, address: ChannelAddress, link: Link) -> None:
        super().__init__(consumer, address.number, 0, BufferPool(0, 0, 0))
        self._address = tuple(address)
        self._link = link
        self._withheld = 0
        """Buffers for which there is no room any more once they are taken."""

    def receive(self, message: Message) -> None:
        self._arrive(message)

    def take(self) -> Message:
        restored = self.recovered > 0
        message = super().take()
        if isinstance(message, Batch) and not restored:
            self._give_room()
        return message

    def widen(self, buffers: int) -> None:
        self._withheld -= min(0, buffers)
        for _ in range(buffers):
            self._give_room()

    def _give_room(self) -> None:
        if self._withheld:
            self._withheld -= 1
        else:
            self._link.send((self._address, None))


class _Nobody:
    """The consumer of a sending end, which holds nothing that could be taken."""

    def arrived(self, message: Message) -> None:
        raise InvariantError(
            "a channel to another worker",
            expected="its messages at the other end",
            found="one that stayed here",
            action="report this as a defect",
        )


class Exchange:
    """All channels of one worker from and to others, by their places."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._links: dict[int, Link] = {}
        self._sending: dict[ChannelAddress, SendingChannel] = {}
        self._receiving: dict[ChannelAddress, ReceivingChannel] = {}

    def connect(self, worker: int, link: Link) -> None:
        """Reach another worker by a link, whose messages go to `received`."""
        self._links[worker] = link

    def sending(self, address: ChannelAddress, buffers: int, pool: BufferPool) -> SendingChannel:
        """The producer's end; `buffers` is what the other end has room for."""
        link = self._links[self._share.worker_of(address.subtask)]
        channel = self._sending[address] = SendingChannel(address, buffers, pool, link)
        return channel

    def receiving(self, gate: Consumer, address: ChannelAddress, producer: int) -> ReceivingChannel:
        """The consumer's end of a channel from subtask `producer`."""
        link = self._links[self._share.worker_of(producer)]
        channel = self._receiving[address] = ReceivingChannel(gate, address, link)
        return channel

    def received(self, message: tuple[ChannelAddress, Message | None]) -> None:
        """A message of another worker; None gives a buffer's room back."""
        address, content = message
        if content is None:
            self._sending[address].give_room()
        else:
            self._receiving[address].receive(content)
