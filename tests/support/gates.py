"""Gates whose channels begin in the same process."""

from collections.abc import Sequence

from tidelog.runtime.channels.channel import BufferPool, Channel
from tidelog.runtime.channels.gate import Gate


def gate_of(pools: Sequence[BufferPool], buffers: int) -> Gate:
    """A gate with a channel for each of the output pools of its producers."""
    return Gate(len(pools), lambda gate, at: Channel(gate, at, buffers, pools[at]))
