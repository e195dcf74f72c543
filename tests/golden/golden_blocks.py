"""What the golden blocks and segments hold."""

from collections.abc import Callable

from tidelog.changelog.block import seal, seal_metadata
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import BlockGroup, PackedSegment, SegmentAuthor, pack
from tidelog.ids import Generation, SeqNo

CHANGES = ChangeBatch(
    SeqNo(1_000_000_007),
    [
        bytes.fromhex("0000 0001 a161"),  # key group 0, state 1, msgpack "a"
        bytes.fromhex("0000 0002 cd0100"),  # key group 0, state 2, msgpack 256
        bytes.fromhex("0100 0001"),  # key group 256, state 1, empty key
        bytes.fromhex("fffe fffd c0"),  # the largest numbers of all, msgpack nil
    ],
    [b"one", None, b"", bytes(range(9))],
)
COMPRESSIBLE = ChangeBatch(
    SeqNo(5),
    [number.to_bytes(2, "big") + b"\x00\x01\xa4same" for number in range(64)],
    [None if number % 8 == 7 else b"value" * 4 for number in range(64)],
)
METADATA = bytes.fromhex("9301a5636f756e74c3")
AUTHOR = SegmentAuthor(Generation(12), "00ff00ff00ff00ff", 345)
SEGMENT_NAME = "segments/golden.seg"


def segment() -> PackedSegment:
    """A subtask with metadata and two blocks, another with one; nothing is compressed, because
    another zstd release may compress to other bytes.
    """
    metadata, changes = seal_metadata(METADATA, CHANGES.first), seal(CHANGES, compression_level=0)
    later = seal(ChangeBatch(CHANGES.end, CHANGES.keys[:1], [None]), compression_level=0)
    groups = [
        BlockGroup("count", 0, [metadata, changes, later]),
        BlockGroup("zählen", 65_535, [changes]),
    ]
    return pack(AUTHOR, SEGMENT_NAME, groups)


FILES: dict[str, Callable[[], bytes]] = {
    "block_changes_v1.bin": lambda: seal(CHANGES, compression_level=0).data,
    "block_changes_zstd_v1.bin": lambda: seal(COMPRESSIBLE).data,
    "block_metadata_v1.bin": lambda: seal_metadata(METADATA, CHANGES.first).data,
    "segment_v1.bin": lambda: segment().data,
}
