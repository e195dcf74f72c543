"""Where the in-flight data of a checkpoint belongs in a job of perhaps another shape: pure.

Invariants: every record goes where the job's own partitioner sends it; the data of a channel
stays in order, the consumer's part before the producer's; nothing is dropped but watermarks, and
those only when the number of subtasks changed: upstream announces its watermark again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidelog.errors import RestoreError
from tidelog.runtime.channels.channel import InFlightData
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.channels.wiring import Wiring, stays_aligned
from tidelog.runtime.graph import Edge, Vertex
from tidelog.runtime.in_flight.capture import ChannelData, ChannelId

Recovered = Mapping[tuple[str, int, int], Sequence[InFlightData]]
"""Data by consumer vertex, its subtask, and the channel of its gate."""


def redistribute(
    parts: Iterable[ChannelData],
    vertices: Sequence[Vertex],
    wiring: Wiring,
    subtasks: Mapping[str, int],
) -> Recovered:
    """The data for each channel; `subtasks` are the checkpoint's, by vertex.

    Raises RestoreError when the job has no such edge any more.
    """
    by_id = {vertex.id: vertex for vertex in vertices}
    recovered: dict[tuple[str, int, int], list[InFlightData]] = defaultdict(list)
    # Pieces of one long part keep their order: the sort is stable.
    for part in sorted(parts, key=lambda part: part.channel):
        consumer = by_id.get(part.channel.consumer)
        if consumer is None or part.channel.input >= len(consumer.inputs):
            raise _no_such_edge(part.channel)
        producer, edge = consumer.inputs[part.channel.input]
        if stays_aligned(producer, edge, consumer):
            raise _other_edge(part.channel, edge)
        for target, number, message in _routed(part, producer, edge, consumer, wiring, subtasks):
            recovered[consumer.id, target, number].append(message)
    return recovered


def _routed(
    part: ChannelData,
    producer: Vertex,
    edge: Edge,
    consumer: Vertex,
    wiring: Wiring,
    subtasks: Mapping[str, int],
) -> Iterator[tuple[int, int, InFlightData]]:
    """Target subtask, channel there, and message."""
    channel = part.channel
    sender = channel.producer_subtask % producer.parallelism
    number = _first_channel(consumer, channel.input) + sender
    same = all(subtasks.get(v.id) == v.parallelism for v in (producer, consumer))
    partitioner = wiring.partitioner(edge, producer, channel.consumer_subtask, consumer)
    for message in part.data:
        if not isinstance(message, Batch):
            if same:
                yield channel.consumer_subtask, number, message
        elif same and edge.routing != "key":
            yield channel.consumer_subtask, number, message
        else:
            for target, batch in partitioner.route(message):
                yield target, number, batch


def _first_channel(consumer: Vertex, at: int) -> int:
    return sum(upstream.parallelism for upstream, _ in consumer.inputs[:at])


def _no_such_edge(channel: ChannelId) -> RestoreError:
    return RestoreError(
        f"records in flight to operator {channel.consumer!r}",
        expected=f"its input number {channel.input}, as the checkpoint has it",
        found="no such input in this job",
        action="give it back, stop the old job with a savepoint, or drop the records "
        "with --drop-in-flight if losing them is acceptable",
    )


def _other_edge(channel: ChannelId, edge: Edge) -> RestoreError:
    return RestoreError(
        f"records in flight to operator {channel.consumer!r}",
        expected="an edge that spreads records by key or evenly, as the checkpoint has it",
        found=f"one that is {edge.routing!r} now",
        action="restore with the old edge, stop the old job with a savepoint, or drop the records "
        "with --drop-in-flight if losing them is acceptable",
    )
