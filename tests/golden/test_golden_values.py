"""What states and checkpoints hold stays readable, and is still written so: values, in-flight
data, and a job with windows, joins and ids, which goes on from its savepoint."""

from collections import Counter

import msgspec

from tests.golden import golden_in_flight as golden
from tests.golden import golden_windows
from tests.golden.writing import stored
from tests.support.jobs import store_of
from tests.support.pipelines import config, run
from tests.support.values import form_of
from tidelog.changelog.block import BlockKind, open_block
from tidelog.checkpoint.manifest import Savepoint, decode_entry
from tidelog.ids import SeqNo
from tidelog.runtime.in_flight.codec import decode, encode
from tidelog.state.objects.values import ObjectEncoding


def test_values_of_version_1_are_read_and_written() -> None:
    encoded = msgspec.msgpack.decode(stored("values_v1.bin"), type=list[bytes])
    encoding = ObjectEncoding("golden")
    assert form_of(list(map(encoding.decode, encoded))) == form_of(golden.VALUES)
    assert list(map(encoding.encode, golden.VALUES)) == encoded


def test_a_block_of_in_flight_data_of_version_1_is_read_and_written() -> None:
    data = stored("block_in_flight_v1.bin")
    block = open_block(data)
    assert (block.kind, block.first, block.count) == (BlockKind.IN_FLIGHT, 11, 3)
    assert repr(golden.PARTS[0]) == repr(decode([block], golden.TYPES)[0])
    assert decode([block], golden.TYPES) == golden.PARTS
    (written,) = encode(golden.PARTS, golden.TYPES, SeqNo(11)).blocks
    assert open_block(written.data).payload() == block.payload()


def test_windows_joins_and_ids_of_version_1_go_on_from_where_they_were() -> None:
    golden = msgspec.msgpack.decode(stored(golden_windows.NAME))
    (savepoint,) = (
        entry
        for name, data in golden["objects"].items()
        if name.startswith("checkpoints/")
        if isinstance(entry := decode_entry(data, name), Savepoint)
    )
    states = [info.kind for operator in savepoint.operators for info in operator.states]
    assert set(states) == golden_windows.KINDS
    found: list[str] = []
    job = golden_windows.job(lambda record: found.append(repr(record)))
    run(job, store_of(golden["objects"]), config(parallelism=3))
    assert Counter(found) == Counter(golden["wanted"])
