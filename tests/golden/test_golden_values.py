"""What states and checkpoints of older releases hold stays readable, and values are still
written so: values, in-flight data, and a job with windows, joins and ids, which goes on from
its savepoint."""

from collections import Counter

import msgspec
import pytest

from tests.golden import golden_in_flight as golden
from tests.golden import golden_windows
from tests.golden.writing import stored
from tests.support.jobs import store_of
from tests.support.pipelines import config, run
from tests.support.values import form_of
from tidelog.changelog.block import BlockKind, open_block
from tidelog.checkpoint.manifest import Savepoint, decode_entry
from tidelog.runtime.in_flight.codec import decode
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.objects.values import ObjectEncoding


def test_values_of_version_1_are_read_and_written() -> None:
    encoded = msgspec.msgpack.decode(stored("values_v1.bin"), type=list[bytes])
    encoding = ObjectEncoding("golden")
    assert form_of(list(map(encoding.decode, encoded))) == form_of(golden.VALUES)
    assert list(map(encoding.encode, golden.VALUES)) == encoded


def test_a_block_of_in_flight_data_of_version_1_is_read() -> None:
    block = open_block(stored("block_in_flight_v1.bin"))
    assert (block.kind, block.first, block.count) == (BlockKind.IN_FLIGHT, 11, 3)
    assert decode([block], RecordTypes()) == golden.PARTS


def test_a_block_of_typed_records_of_version_1_is_read() -> None:
    block = open_block(stored("block_in_flight_records_v1.bin"))
    assert (block.kind, block.first, block.count) == (BlockKind.IN_FLIGHT_RECORDS, 11, 3)
    assert repr(golden.TYPED_PARTS[0]) == repr(decode([block], golden.TYPES)[0])
    assert decode([block], golden.TYPES) == golden.TYPED_PARTS


@pytest.mark.parametrize("store_name", golden_windows.STORES)
def test_windows_joins_and_ids_of_version_1_go_on_from_where_they_were(store_name: str) -> None:
    operators, kinds = golden_windows.STORES[store_name]
    golden = msgspec.msgpack.decode(stored(store_name))
    (savepoint,) = (
        entry
        for name, data in golden["objects"].items()
        if name.startswith("checkpoints/")
        if isinstance(entry := decode_entry(data, name), Savepoint)
    )
    states = [info.kind for operator in savepoint.operators for info in operator.states]
    assert set(states) == kinds
    found: list[str] = []
    job = golden_windows.job(lambda record: found.append(repr(record)), operators)
    run(job, store_of(golden["objects"]), config(parallelism=3))
    assert Counter(found) == Counter(golden["wanted"])
