"""Where the in-flight data of a checkpoint belongs in a job of perhaps another shape: pure.

Invariants: every record goes where the job's own partitioner sends it, but what a subtask was given
in turn or by its sender stays with that subtask while it exists; the data of a channel stays in
order, the consumer's part before the producer's, through any number of restarts in other shapes;
nothing is dropped but watermarks, and those only when the number of subtasks changed: upstream
announces its watermark again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidelog.errors import RestoreError
from tidelog.runtime.channels.channel import ChannelAddress, InFlightData
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.in_flight.capture import ChannelData
from tidelog.runtime.node import Node
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.runtime.subtasks.wiring import Wiring

Recovered = Mapping[ChannelAddress, Sequence[InFlightData]]


def redistribute(
    parts: Iterable[ChannelData],
    vertices: Sequence[Vertex],
    wiring: Wiring,
    subtasks: Mapping[str, int],
) -> Recovered:
    """The data for each channel; `subtasks` are the checkpoint's, by vertex.

    Every operator that records are on their way to heads a vertex. Raises RestoreError when the
    job has no such edge any more.
    """
    by_id = {vertex.id: vertex for vertex in vertices}
    recovered: dict[ChannelAddress, list[InFlightData]] = defaultdict(list)
    # Pieces of one long part keep their order: the sort is stable.
    for part in sorted(parts, key=lambda part: part.channel):
        consumer = by_id.get(part.channel.consumer)
        if consumer is None or part.channel.input >= len(consumer.inputs):
            raise no_such_edge(part.channel.consumer, part.channel.input)
        for address, message in _routed(part, consumer, wiring, subtasks):
            recovered[address].append(message)
    return recovered


def _routed(
    part: ChannelData, consumer: Vertex, wiring: Wiring, subtasks: Mapping[str, int]
) -> Iterator[tuple[ChannelAddress, InFlightData]]:
    """Each message of a channel, with the channel that it goes to."""
    channel = part.channel
    producer, edge = consumer.inputs[channel.input]
    sender = channel.producer_subtask % producer.parallelism
    known_target = subtasks.get(consumer.id) == consumer.parallelism
    same = known_target and _senders(edge.node, subtasks) == producer.parallelism
    # In another shape: into the first channel, so that a checkpoint taken before all of it was
    # handled has it before what came later, of whichever producer a key has now.
    before = sum(upstream.parallelism for upstream in consumer.upstreams[: channel.input])
    number = before + (sender if same else 0)
    same_target = ChannelAddress(consumer.id, channel.consumer_subtask, number)
    # An even spread starts where each channel was, so that many channels stay evenly spread.
    start = channel.consumer_subtask if edge.routing == "rebalance" else sender
    partitioner = wiring.partitioner(edge, start, consumer)
    for message in part.data:
        if not isinstance(message, Batch):
            if same:
                yield same_target, message
        elif known_target and edge.routing in ("forward", "rebalance"):
            yield same_target, message
        else:
            for target, batch in partitioner.route(message):
                yield ChannelAddress(consumer.id, target, number), batch


def _senders(node: Node, subtasks: Mapping[str, int]) -> int | None:
    """How many subtasks a node has in the checkpoint, or the node that it was chained to."""
    while node.id not in subtasks and len(node.inputs) == 1:
        node = node.inputs[0].node
    return subtasks.get(node.id)


def no_such_edge(consumer: str, number: int) -> RestoreError:
    """The error for records in flight to an input that the job does not have."""
    return RestoreError(
        f"records in flight to operator {consumer!r}",
        expected=f"its input number {number}, as the checkpoint has it",
        found="no such input in this job",
        action="give it back, stop the old job with a savepoint, or drop the records "
        "with --drop-in-flight if losing them is acceptable",
    )
