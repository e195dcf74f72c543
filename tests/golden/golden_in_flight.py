"""What the golden block of in-flight data holds, and the script that wrote it."""

from collections.abc import Callable

from tests.golden.writing import write_missing
from tidelog.ids import SeqNo
from tidelog.runtime.channels.messages import Batch, Watermark
from tidelog.runtime.in_flight.capture import ChannelData, ChannelId
from tidelog.runtime.in_flight.codec import RecordTypes, encode

PARTS = [
    ChannelData(
        ChannelId("count", 1, 2, 3, behind=False),
        [Batch([("a", 1), None], [1_700_000_000_000, 5]), Watermark(-7)],
    ),
    ChannelData(ChannelId("count", 1, 2, 3, behind=True), [Batch([2.5])]),
]

FILES: dict[str, Callable[[], bytes]] = {
    "block_in_flight_v1.bin": lambda: encode(PARTS, RecordTypes(), SeqNo(11))[0].data,
}


if __name__ == "__main__":
    write_missing(FILES)
