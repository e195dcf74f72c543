"""A job with windows, joins and ids of an older release goes on from its savepoint."""

import asyncio
from collections import Counter

import msgspec

from tests.golden import golden_windows
from tests.golden.writing import stored
from tests.support.pipelines import config, run
from tidelog.checkpoint.manifest import Savepoint, decode_entry
from tidelog.storage.memory import MemoryStore


def test_windows_joins_and_ids_of_version_1_go_on_from_where_they_were() -> None:
    golden = msgspec.msgpack.decode(stored("store_windows_v1.bin"))
    (savepoint,) = (
        entry
        for name, data in golden["objects"].items()
        if name.startswith("checkpoints/")
        if isinstance(entry := decode_entry(data, name), Savepoint)
    )
    states = [info.kind for operator in savepoint.operators for info in operator.states]
    assert set(states) == golden_windows.KINDS

    store, found = MemoryStore(), list[str]()
    for name, data in golden["objects"].items():
        asyncio.run(store.put(name, data))
    run(golden_windows.job(lambda record: found.append(repr(record))), store, config(parallelism=3))
    assert Counter(found) == Counter(golden["wanted"])
