"""In-flight data that older releases wrote stays readable."""

from tests.golden import golden_in_flight as golden
from tests.golden.writing import FOLDER
from tidelog.changelog.block import BlockKind, open_block
from tidelog.runtime.in_flight.codec import decode
from tidelog.state.objects.classes import RecordTypes


def test_a_block_of_in_flight_data_of_version_1_is_read() -> None:
    block = open_block((FOLDER / "block_in_flight_v1.bin").read_bytes())
    assert (block.kind, block.first, block.count) == (BlockKind.IN_FLIGHT, 11, 3)
    assert decode([block], RecordTypes()) == golden.PARTS


def test_a_block_of_typed_records_of_version_1_is_read() -> None:
    block = open_block((FOLDER / "block_in_flight_records_v1.bin").read_bytes())
    assert (block.kind, block.first, block.count) == (BlockKind.IN_FLIGHT_RECORDS, 11, 3)
    assert repr(golden.TYPED_PARTS[0]) == repr(decode([block], golden.TYPES)[0])
    assert decode([block], golden.TYPES) == golden.TYPED_PARTS
