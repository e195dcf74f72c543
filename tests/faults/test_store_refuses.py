"""A store or a disk that refuses, is full or forgets its promises: a clear error, no damage, a
good end; with room the job goes on exactly."""

import asyncio
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

import tidelog
from tests.faults.counting import checkpoints, counting, finish, settings, start, usual
from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.jobs import contents, store_of
from tests.support.pipelines import Outside, Portions, running
from tests.unit.storage.test_every_store_conforms import Overwriting
from tidelog import CheckpointConfig, JobRunner, JobStatus, MaterializeConfig, TidelogError
from tidelog.errors import (
    AccessDeniedError,
    CheckpointFailedError,
    ConditionalPutError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
)
from tidelog.storage import object_names
from tidelog.storage.errors import access_denied, store_full, store_unreachable
from tidelog.storage.local import LocalStore
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog.table.failures import translate
from tidelog.table.rocksdb import RocksTable
from tidelog.table.rocksdb_factory import RocksTableFactory

Failing = Callable[[str, str], StorageError]

REFUSALS = pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (store_full, StoreFullError, "free or add space"),
        (store_unreachable, StoreUnreachableError, "check the endpoint and the network"),
        (access_denied, AccessDeniedError, "check the credentials"),
    ],
    ids=["full", "unreachable", "denied"],
)


def faulty(store: ObjectStore, *faults: Fault) -> FaultyStore:
    return FaultyStore(store, faults, VirtualClock())


def failing(operation: str, error: Failing) -> Fault:
    return Fault(FaultKind.FAIL, operation, error=error)


@REFUSALS
@pytest.mark.parametrize("operation", ["list", "get", "create"])
def test_a_store_that_refuses_at_the_start_stops_it_before_anything_is_written(
    operation: str, error: Failing, kind: type[StorageError], says: str
) -> None:
    store = store_of(usual())
    with pytest.raises(kind, match=object_names.CHECKPOINTS) as refused:
        finish(faulty(store, failing(operation, error)))
    assert says in refused.value.action
    assert contents(store) == usual()
    assert finish(store).restored_checkpoint == checkpoints(usual())[-1]


@REFUSALS
def test_a_store_that_takes_no_more_stops_the_job_and_it_resumes_where_it_was(
    error: Failing, kind: type[StorageError], says: str
) -> None:
    store = store_of(usual())
    # Tables are refused, too, and must not be tried often enough to stop the job first.
    tables = MaterializeConfig(interval=2.5, retry_pause=1.0)
    chosen = settings(
        checkpoint=CheckpointConfig(interval=1.0, tolerable_failures=2), materialize=tables
    )
    with pytest.raises(CheckpointFailedError, match="3 checkpoints in a row") as failed:
        finish(faulty(store, failing("put", error)), chosen)
    assert says in str(failed.value)
    assert "it resumes from its last completed checkpoint" in failed.value.action
    assert finish(store).restored_checkpoint == checkpoints(usual())[-1]


@REFUSALS
def test_a_store_that_deletes_nothing_keeps_no_job_from_its_end(
    error: Failing, kind: type[StorageError], says: str
) -> None:
    store = store_of(usual())
    finish(faulty(store, failing("delete", error)), settings(retain=1))
    assert usual().items() <= contents(store).items()


class Untouched(Portions):
    """A source that nobody may ask."""

    def __init__(self) -> None:
        super().__init__({})

    def discover(self) -> Iterable[str]:
        raise AssertionError("the job runs")


def test_a_store_without_conditional_writes_is_refused_before_anything_runs() -> None:
    store = Overwriting()
    with pytest.raises(ConditionalPutError, match="exactly one winner") as refused:
        start(counting(Outside(), read=Untouched()), store)
    assert "tidelog store check" in refused.value.action
    assert not refused.value.retry_safe
    assert list(contents(store)) == ["checkpoints/00000000.json"]
    finish(store_of(contents(store)))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four MiB; skipped, with the reason, where none may be mounted."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mounted)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    yield mounted
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def fill(disk: Path) -> Path:
    """A file that leaves no room."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return ballast


def fills(disk: Path) -> Callable[[str], str]:
    """A function of a job that fills the disk when it has seen some words."""
    seen = count(1)

    def passed_on(word: str) -> str:
        if next(seen) == 30:
            fill(disk)
        return word

    return passed_on


def test_a_work_directory_without_room_stops_the_start_and_with_room_it_resumes(
    small_disk: Path,
) -> None:
    store = store_of(usual())
    ballast = fill(small_disk)
    with pytest.raises(StoreFullError, match=str(small_disk)) as refused:
        finish(store, settings(small_disk))
    assert "free disk space or move the work directory" in refused.value.action
    ballast.unlink()
    assert finish(store, settings(small_disk)).restored_checkpoint == checkpoints(usual())[-1]


def test_a_work_directory_that_fills_up_stops_the_job_and_with_room_it_resumes(
    small_disk: Path,
) -> None:
    store = MemoryStore()
    with pytest.raises(TidelogError, match="free disk space or move the work directory"):
        start(counting(Outside(), fills(small_disk)), store, settings(small_disk))
    (small_disk / "ballast").unlink()
    assert finish(store, settings(small_disk)).restored_checkpoint is not None


def test_a_store_on_a_full_disk_stops_the_job_and_with_room_it_resumes(small_disk: Path) -> None:
    effects = in_virtual_time(0)
    store = LocalStore(str(small_disk / "store"), effects)
    with pytest.raises(TidelogError, match="free or add space") as failed:
        start(counting(Outside(), fills(small_disk)), store)
    assert str(small_disk) in str(failed.value)
    (small_disk / "ballast").unlink()
    assert finish(store).restored_checkpoint is not None


def test_a_table_that_finds_no_room_stops_the_job_before_a_checkpoint_misses_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on the small disk, for machines that cannot mount one."""
    store, write, writes = MemoryStore(), RocksTable.write, 0

    def full(table: RocksTable, keys: list[bytes], values: list[bytes | None]) -> None:
        nonlocal writes
        writes += 1
        if writes > 6:
            raise translate(OSError(28, "No space left on device"), tmp_path)
        write(table, keys, values)

    with monkeypatch.context() as patched:
        patched.setattr(RocksTable, "write", full)
        with pytest.raises(StoreFullError, match=str(tmp_path)):
            finish(store, settings(tmp_path))
    assert finish(store, settings(tmp_path)).restored_checkpoint is not None


@pytest.mark.parametrize("step", ["prepare_snapshot", "freeze"])
def test_a_local_disk_that_refuses_is_a_failed_materialization(
    step: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(table: RocksTable, *_: Path) -> None:
        raise translate(OSError(28, "No space left on device"), tmp_path)

    monkeypatch.setattr(RocksTable, step, full)
    effects, looks = in_virtual_time(0), list[JobStatus]()
    config = replace(settings(tmp_path), materialize=MaterializeConfig(interval=0.5))
    runner = JobRunner(counting(Outside()), MemoryStore(), config, effects)

    async def run() -> None:
        async with running(runner) as task:
            while not task.done():
                looks.append(tidelog.status_of(runner))
                await effects.clock.sleep(0.5)

    asyncio.run(run())
    materializations = looks[-1].materializations
    assert materializations.failed > 0
    assert str(tmp_path) in str(materializations.last_failure)


def test_a_directory_that_cannot_be_made_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file/sub/table; expected the dir.*Not a directory"):
        RocksTableFactory().create(tmp_path / "file" / "sub" / "table")
    denied = translate(PermissionError(13, "Permission denied", "/srv/work/a-0"), Path("/srv/work"))
    assert isinstance(denied, AccessDeniedError)
    assert "/srv/work/a-0" in denied.what and "check its owner and mode" in denied.action
