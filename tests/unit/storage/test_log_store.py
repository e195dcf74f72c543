"""The log of a store can be in another one, which every reader finds and nobody mixes up."""

import asyncio
from pathlib import Path

import pytest

from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.unit.storage.conformance import fill, names
from tidelog.effects import Effects, InlineOffload, SystemClock
from tidelog.errors import ConfigError, RestoreError, StoreUnreachableError, TidelogError
from tidelog.storage.local import LocalStore
from tidelog.storage.log_store import StoreWithLog, log_place
from tidelog.storage.memory import MemoryStore
from tidelog.storage.open import open_store
from tidelog.storage.port import ObjectStore

INLINE = Effects(offload=InlineOffload())


class Disk:
    """Stores in directories, opened as programs open them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self, name: str, log: str | None = None) -> ObjectStore:
        log_url = None if log is None else str(self.root / log)
        return open_store(str(self.root / name), effects=INLINE, log_url=log_url)

    def names(self, name: str) -> list[str]:
        return asyncio.run(names(LocalStore(self.root / name, INLINE)))

    def fill(self, name: str, log: str | None = None) -> None:
        async def main() -> None:
            store = self.open(name, log)
            await store.create("checkpoints/00000001.json", b"slot")
            await fill(store, "segments/a.seg", "tables/a.sst")

        asyncio.run(main())

    def read(self, name: str, log: str | None = None) -> bytes:
        return asyncio.run(self.open(name, log).get("segments/a.seg"))

    def refused(self, name: str, log: str | None = None) -> TidelogError:
        with pytest.raises(TidelogError) as caught:
            self.read(name, log)
        return caught.value


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_segments_are_in_the_log_store_and_all_else_is_in_the_store(disk: Disk) -> None:
    disk.fill("main", "fast")
    assert disk.names("main") == ["checkpoints/00000001.json", "log-store.json", "tables/a.sst"]
    assert disk.names("fast") == ["log-of.json", "segments/a.seg"]


def test_a_store_that_is_opened_without_its_log_store_finds_it(disk: Disk) -> None:
    disk.fill("main", "fast")
    assert disk.read("main") == b"segments/a.seg"
    assert asyncio.run(names(disk.open("main"))) == [
        "checkpoints/00000001.json",
        "segments/a.seg",
        "tables/a.sst",
    ]


@pytest.mark.parametrize(
    ("prefix", "after", "listed"),
    [
        ("segments/a", "", ["segments/a.seg"]),
        ("segments/", "segments/a.seg", []),
        ("seg", "", ["segments/a.seg"]),
        ("tables/", "", ["tables/a.sst"]),
        ("", "segments/a.seg", ["tables/a.sst"]),
        ("log", "", []),
    ],
)
def test_a_listing_has_the_objects_of_both_in_order(
    disk: Disk, prefix: str, after: str, listed: list[str]
) -> None:
    disk.fill("main", "fast")
    assert asyncio.run(names(disk.open("main"), prefix, after)) == listed


def test_a_second_start_may_name_the_log_store_again_and_no_other(disk: Disk) -> None:
    disk.fill("main", "fast")
    assert disk.read("main", "fast") == b"segments/a.seg"
    error = disk.refused("main", "other")
    assert isinstance(error, ConfigError)
    assert f"found {disk.root.as_uri()}/fast" in str(error)
    assert disk.names("other") == []


def test_a_store_that_began_with_its_log_beside_its_tables_keeps_it_there(disk: Disk) -> None:
    disk.fill("main")
    error = disk.refused("main", "fast")
    assert isinstance(error, ConfigError)
    assert "tidelog clone URL@latest NEWURL --log-store URL" in str(error)
    assert disk.names("fast") == [] and disk.read("main") == b"segments/a.seg"


def test_two_stores_never_share_a_log_store(disk: Disk) -> None:
    disk.fill("main", "fast")
    error = disk.refused("second", "fast")
    assert isinstance(error, ConfigError) and f"the log of {disk.root.as_uri()}/main" in str(error)
    assert disk.names("second") == []


def test_a_job_does_not_begin_in_the_log_store_of_another_one(disk: Disk) -> None:
    disk.fill("main", "fast")
    with pytest.raises(ConfigError, match=r"found the log of .*/main"):
        asyncio.run(disk.open("fast").create("checkpoints/00000000.json", b"start"))
    assert disk.names("fast") == ["log-of.json", "segments/a.seg"]


def test_an_emptied_log_store_is_an_error_before_a_start_fences_or_a_segment_is_read(
    disk: Disk,
) -> None:
    disk.fill("main", "fast")
    for name in disk.names("fast"):
        (disk.root / "fast" / name).unlink()
    told = r"no log-of\.json.*bring the log store back"
    with pytest.raises(RestoreError, match=told):
        asyncio.run(disk.open("main").create("checkpoints/00000002.json", b"start"))
    assert disk.names("main") == ["checkpoints/00000001.json", "log-store.json", "tables/a.sst"]
    with pytest.raises(RestoreError, match=told):
        disk.read("main")


def test_the_log_store_of_another_one_in_its_place_is_an_error(disk: Disk) -> None:
    disk.fill("main", "fast")
    disk.fill("second", "slow")
    (disk.root / "slow" / "log-of.json").replace(disk.root / "fast" / "log-of.json")
    error = disk.refused("main")
    assert isinstance(error, RestoreError)
    assert f"the log of {disk.root.as_uri()}/second" in str(error)


def test_what_an_earlier_store_of_this_url_left_in_the_log_store_is_not_taken_over(
    disk: Disk,
) -> None:
    disk.fill("main", "fast")
    for name in disk.names("main"):
        (disk.root / "main" / name).unlink()
    assert "delete what is here" in str(disk.refused("main", "fast"))


@pytest.mark.parametrize("broken", ["main", "log"])
async def test_a_start_that_was_cut_short_is_completed_by_the_next_one(broken: str) -> None:
    main, log = MemoryStore("memory://main"), MemoryStore("memory://log")
    numbers = iter(["1" * 16, "2" * 16])
    faults = [Fault(FaultKind.FAIL, "create", after=broken == "log")]
    failing = FaultyStore(main if broken == "main" else log, faults, SystemClock())

    def opened(first: ObjectStore, second: ObjectStore) -> StoreWithLog:
        return StoreWithLog(first, lambda url: second, lambda: next(numbers), second)

    cut = opened(failing, log) if broken == "main" else opened(main, failing)
    with pytest.raises(StoreUnreachableError):
        await cut.put("segments/a", b"1")
    store = opened(main, log)
    await store.put("segments/a", b"1")
    assert await names(log) == ["log-of.json", "segments/a"]
    assert await log_place(store)


async def test_two_first_starts_at_once_agree_on_one_log_store() -> None:
    main = MemoryStore("memory://main")
    logs = {url: MemoryStore(url) for url in ("memory://one", "memory://two")}
    ids = iter(["1" * 16, "2" * 16, "3" * 16])

    async def start(url: str) -> str | None:
        store = StoreWithLog(main, logs.__getitem__, lambda: next(ids), logs[url])
        try:
            await store.put("segments/" + url[-3:], b"1")
        except ConfigError as error:
            return error.found
        return None

    found = await asyncio.gather(*map(start, ["memory://one", "memory://one", "memory://two"]))
    assert found == [None, None, "memory://one"]
    assert await names(logs["memory://one"]) == ["log-of.json", "segments/one"]
