"""A job on an encrypted store restarts from it, and from encrypted copies on its machine."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.counting import EXPECTED, counting, refuse_poison, settings
from tests.support.faults import SteerableStore
from tests.support.jobs import contents
from tests.support.pipelines import Outside, effects
from tidelog import ConfigError, Effects, JobRunner, UserFunctionError
from tidelog.effects import InlineOffload
from tidelog.storage.encryption.keys import LocalKeys
from tidelog.storage.encryption.store import EncryptedStore
from tidelog.storage.memory import MemoryStore

INLINE = Effects(offload=InlineOffload())


def opened(inner: SteerableStore | MemoryStore) -> EncryptedStore:
    return EncryptedStore(inner, LocalKeys((b"k" * 32,), "the key of the test", INLINE), INLINE)


@pytest.mark.parametrize("copied", [False, True], ids=["", "local recovery"])
@pytest.mark.parametrize("changelog", [True, False])
def test_a_job_that_broke_off_goes_on_from_its_encrypted_state(
    tmp_path: Path, changelog: bool, copied: bool
) -> None:
    kept = tmp_path / "kept"
    config = settings(
        tmp_path / "work", changelog=changelog, local_recovery=kept if copied else None
    )
    inner, sink = MemoryStore("memory://encrypted"), Outside()
    with pytest.raises(UserFunctionError):
        job = counting(Outside(), refuse_poison)
        asyncio.run(JobRunner(job, opened(inner), config, effects()).run())
    seen = SteerableStore(inner)
    runner = JobRunner(counting(sink), opened(seen), config, effects(2))
    asyncio.run(runner.run())
    assert runner.incarnation is not None and runner.incarnation.plan.checkpoint is not None
    assert Counter(dict(sink.records)) == EXPECTED
    stored = {name: data for name, data in contents(inner).items() if not name.startswith("keys/")}
    assert stored and all(data.startswith(b"TDLGCRPT") for data in stored.values())
    files = [path for path in kept.rglob("*") if path.is_file()]
    assert bool(files) is copied
    assert all(path.read_bytes().startswith(b"TDLGCRPT") for path in files)
    read = {name for operation, name in seen.calls if operation == "get"}
    assert any(name.startswith(("segments/", "tables/")) for name in read) is not copied


def test_a_damaged_or_forged_copy_is_not_used(tmp_path: Path) -> None:
    config = settings(tmp_path / "work", local_recovery=tmp_path / "kept")
    inner, sink = MemoryStore("memory://encrypted"), Outside()
    with pytest.raises(UserFunctionError):
        job = counting(Outside(), refuse_poison)
        asyncio.run(JobRunner(job, opened(inner), config, effects()).run())
    copies = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    first = copies[0].read_bytes()
    for path in copies:  # each has the name of another one
        path.write_bytes(first if path is not copies[0] else first[:-1])
    runner = JobRunner(counting(sink), opened(inner), config, effects(2))
    asyncio.run(runner.run())
    assert Counter(dict(sink.records)) == EXPECTED
    assert runner.incarnation is not None and runner.incarnation.start.copies is not None
    metrics = runner.incarnation.start.copies.metrics
    assert metrics.used == 0 and metrics.damaged > 0


def test_a_configured_key_and_a_store_without_one_do_not_go_together(tmp_path: Path) -> None:
    config = settings(tmp_path, encryption_key=str(tmp_path / "state.key"))
    with pytest.raises(ConfigError, match=r"open_store\(\.\.\., encryption_key=config"):
        JobRunner(counting(Outside()), MemoryStore(), config, effects())
