"""Channels between subtasks in different workers: the producer's end and the consumer's end.

Invariants: a producer sends a buffer only when the consumer's end has room for it, which its
credit says (Flink's credit-based flow control), so no socket holds more than the consumer takes;
what is in a socket belongs to the consumer, and is in-flight data there when a barrier overtakes.
"""

from tidelog.errors import InvariantError
from tidelog.runtime.channels.channel import BufferPool, Channel, Consumer
from tidelog.runtime.channels.messages import Batch, Message
from tidelog.runtime.subtasks.vertices import Share
from tidelog.runtime.workers.link import Link

Place = tuple[str, int, int]
"""A channel: its consumer's vertex and subtask, and its number there."""


class SendingChannel(Channel):
    """The producer's end of a channel to another worker: it has the backlog."""

    __slots__ = ("_link", "_place")

    def __init__(self, place: Place, buffers: int, pool: BufferPool, link: Link) -> None:
        super().__init__(_Nobody(), place[2], buffers, pool)
        self._place = place
        self._link = link

    def give_room(self) -> None:
        """The consumer has taken a buffer."""
        self._room += 1
        self._move()

    def _arrive(self, message: Message) -> None:
        self._link.send((self._place, message))


class ReceivingChannel(Channel):
    """The consumer's end of a channel from another worker: it has the input."""

    __slots__ = ("_link", "_place")

    def __init__(self, consumer: Consumer, place: Place, link: Link) -> None:
        super().__init__(consumer, place[2], 0, BufferPool(0, 0, 0))
        self._place = place
        self._link = link

    def receive(self, message: Message) -> None:
        self._arrive(message)

    def take(self) -> Message:
        restored = self.recovered > 0
        message = super().take()
        if isinstance(message, Batch) and not restored:
            self._link.send((self._place, None))
        return message


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
        self._sending: dict[Place, SendingChannel] = {}
        self._receiving: dict[Place, ReceivingChannel] = {}

    def connect(self, worker: int, link: Link) -> None:
        """Reach another worker by a link, whose messages go to `received`."""
        self._links[worker] = link

    def sending(self, place: Place, buffers: int, pool: BufferPool) -> SendingChannel:
        """The producer's end; `buffers` is what the other end has room for."""
        link = self._links[self._share.worker_of(place[1])]
        channel = self._sending[place] = SendingChannel(place, buffers, pool, link)
        return channel

    def receiving(self, consumer: Consumer, place: Place, producer: int) -> ReceivingChannel:
        """The consumer's end of a channel from subtask `producer`."""
        link = self._links[self._share.worker_of(producer)]
        channel = self._receiving[place] = ReceivingChannel(consumer, place, link)
        return channel

    def received(self, message: tuple[Place, Message | None]) -> None:
        """A message of another worker; None gives a buffer's room back."""
        place, content = message
        if content is None:
            self._sending[place].give_room()
        else:
            self._receiving[place].receive(content)
