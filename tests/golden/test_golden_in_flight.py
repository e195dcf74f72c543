"""In-flight data written by the first release that had it stays readable."""

from tests.golden import golden_in_flight as golden
from tests.golden.writing import FOLDER
from tidelog.changelog.block import BlockKind, open_block
from tidelog.runtime.in_flight.codec import RecordTypes, decode


def test_a_block_of_in_flight_data_of_version_1_is_read() -> None:
    block = open_block((FOLDER / "block_in_flight_v1.bin").read_bytes())
    assert (block.kind, block.first, block.count) == (BlockKind.IN_FLIGHT, 11, 3)
    assert decode([block], RecordTypes()) == golden.PARTS
