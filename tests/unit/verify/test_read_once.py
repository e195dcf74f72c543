"""What the tables and the logs of several checkpoints share is read once by one worker."""

import asyncio
from collections import Counter

from tests.support.jobs import virtual_effects
from tests.unit.verify.stores import Objects, overlapping, small
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.verify.engines import LocalEngine
from tidelog.verify.job.verification import verify_store
from tidelog.verify.report import Report
from tidelog.verify.unit import WorkerConfig


class CountingStore(MemoryStore):
    """Counts the bytes read of each object."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(name, start, length)
        self.read[name] += len(data)
        return data


def counted(objects: Objects) -> tuple[Report, Counter[str]]:
    async def check() -> Report:
        for name, data in objects.items():
            await store.put(name, data)
        engine = LocalEngine(store, virtual_effects(), WorkerConfig(store.url), jobs=1)
        return await verify_store(store, engine)

    store = CountingStore()
    return asyncio.run(check()), store.read


def test_files_that_tables_of_several_checkpoints_share_are_read_once() -> None:
    report, read = counted(small())
    assert report.passed and len(report.checkpoints) == 4
    tables = {n: len(d) for n, d in small().items() if n.startswith(object_names.TABLES)}
    found = {name: read[name] for name in tables if read[name]}
    assert found and found == {name: tables[name] for name in found}


def test_log_is_read_for_each_table_below_it_not_for_each_checkpoint() -> None:
    report, read = counted(overlapping())
    assert report.passed and sum(checkpoint.equal for checkpoint in report.checkpoints) > 0
    log = {n: len(d) for n, d in overlapping().items() if n.startswith(object_names.SEGMENTS)}
    # In whole; above the materialization that checkpoints name, and above an older one.
    assert sum(read[name] for name in log) <= 3 * sum(log.values())
