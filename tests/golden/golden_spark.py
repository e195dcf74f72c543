"""What the golden files of Spark hold; `Golden.scala` says the same and wrote them.

The changelogs were written by Spark 4.3.0 itself: version 3 by an aggregation (`v` summed by `k`),
version 4 by a join of two streams with virtual column families, both over four batches.
"""

from base64 import b64encode

from tests.support.spark_segments import NewPiece, pack_pieces, write_index
from tidelog.changelog.segment import SegmentAuthor
from tidelog.ids import Generation
from tidelog.spark.format.index import ChangelogPiece, IndexDocument, IndexEntry
from tidelog.spark.format.names import IN_COMMIT, ChangelogName, segment_name

AUTHOR = SegmentAuthor(Generation(1_700_000_000_000), "0a1b2c3d-1", 7)
SEGMENT_NAME = segment_name("0a1b2c3d", "1", 7)
OTHER_SEGMENT = segment_name("0a1b2c3d", "driver", 123_456_789)

LARGE = ChangelogName(0, 3, "default", 12, "5d1c8f3e-0b1a-4c55-9c39-5b1d2e6f7a80")
JOINED = ChangelogName(1, 199, "left-keyToNumValues", 12, "e0b0a6a2-77b5-4d0c-8f5e-3f2f6f1f9c11")
EMPTY = ChangelogName(4_294_967_296, 0, "zählwerk", 5_000_000_000, "ü_1")

PIECES = [
    NewPiece(LARGE, 0, 0, bytes(range(256))),
    NewPiece(JOINED, 0, 1, b"LZ4Block"),
    NewPiece(LARGE, 1, 0, bytes(reversed(range(256)))),
    NewPiece(EMPTY, 0, 1, b""),
    NewPiece(LARGE, 2, 3, b"\xff"),
]
SEGMENT, PLACES = pack_pieces(AUTHOR, SEGMENT_NAME, PIECES)

ENTRIES = (
    IndexEntry(LARGE, 513, (PLACES[0], PLACES[2], PLACES[4])),
    IndexEntry(JOINED, 8, (PLACES[1],)),
)
COMMIT = IndexDocument(11, 11, {SEGMENT_NAME: len(SEGMENT)}, ENTRIES)

SEGMENT_IN_COMMIT, (PLACE_IN_COMMIT,) = pack_pieces(
    AUTHOR, f"{IN_COMMIT}11", [NewPiece(JOINED, 0, 1, b"LZ4Block")]
)
COMMIT_WITH_SEGMENT = IndexDocument(
    11, 11, {f"{IN_COMMIT}11": len(SEGMENT_IN_COMMIT)}, (IndexEntry(JOINED, 8, (PLACE_IN_COMMIT,)),)
)


def _later(version: int) -> IndexEntry:
    name = ChangelogName(0, 3, "default", version, f"id-{version}")
    return IndexEntry(name, 300, (ChangelogPiece(OTHER_SEGMENT, 44 + 400 * (version - 13), 390),))


ROLL_UP = IndexDocument(
    10,
    19,
    {SEGMENT_NAME: len(SEGMENT), OTHER_SEGMENT: 5_000_000_000},
    (ENTRIES[0], _later(13), _later(19), _later(20), ENTRIES[1]),
)

SPARK_LINES = (
    'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":'
    f'{{"0":[["{LARGE.id}"]],"1":[["{JOINED.id}"]]}}}}'
)

FILES: dict[str, bytes] = {
    "spark_segment_v1.bin": SEGMENT,
    "spark_commit_v1.txt": f"{SPARK_LINES}\n{write_index(COMMIT)}".encode(),
    "spark_commit_segment_v1.txt": "\n".join(
        (SPARK_LINES, write_index(COMMIT_WITH_SEGMENT), b64encode(SEGMENT_IN_COMMIT).decode())
    ).encode(),
    "spark_roll_up_v1.json": write_index(ROLL_UP).encode(),
}
"""Golden files that are reproduced byte for byte."""

CHANGELOGS = [f"spark_changelog_v{v}_{codec}.bin" for v in (3, 4) for codec in ("lz4", "zstd")]
"""Golden files that Spark wrote."""
