"""The local store: what is on the disk, in which order it got there, and how it fails."""

import asyncio
import errno
import multiprocessing
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.storage.conformance import names
from tidelog.effects import Effects, InlineOffload
from tidelog.errors import (
    AccessDeniedError,
    ConditionalPutError,
    ConfigError,
    ObjectExistsError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
)
from tidelog.storage import local
from tidelog.storage.local import LocalStore
from tidelog.storage.local_files import TEMP_DIRECTORY

INLINE = Effects(offload=InlineOffload())
run = asyncio.run


def temps(root: Path) -> list[str]:
    return sorted(path.name for path in (root / TEMP_DIRECTORY).iterdir())


def create_in_a_process_of_its_own(root: Path, author: str, barrier: Any, wins: Any) -> None:
    store = LocalStore(root, INLINE)
    for round_ in range(20):
        barrier.wait()
        try:
            run(store.create(f"checkpoints/{round_:08d}.json", author.encode()))
            wins.put((round_, author))
        except ObjectExistsError:
            continue


def test_a_create_has_exactly_one_winner_across_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, wins = context.Barrier(3, timeout=30), context.Queue()
    processes = [
        context.Process(
            target=create_in_a_process_of_its_own, args=(tmp_path, f"author {i}", barrier, wins)
        )
        for i in range(3)
    ]
    for process in processes:
        process.start()
    winners = sorted(wins.get(timeout=60) for _ in range(20))
    for process in processes:
        process.join()
    assert wins.empty()
    assert [round_ for round_, _ in winners] == list(range(20))
    for round_, author in winners:
        assert (tmp_path / f"checkpoints/{round_:08d}.json").read_text() == author
    assert temps(tmp_path) == []


def test_a_directory_that_is_named_from_another_one_has_the_same_url_and_outlives_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = tmp_path / "releases" / "5"
    release.mkdir(parents=True)
    monkeypatch.chdir(release)
    store = LocalStore("../../store", INLINE)
    assert store.url == LocalStore(tmp_path / "store", INLINE).url
    monkeypatch.chdir(tmp_path)
    release.rmdir()
    run(store.put("a", b"1"))
    assert (tmp_path / "store" / "a").read_bytes() == b"1"


def synced(
    monkeypatch: pytest.MonkeyPatch, look: Callable[[], bool] = lambda: True
) -> list[tuple[Path, bool]]:
    """Every file and directory that is synced from now on, and what was to be seen just before."""
    found: list[tuple[Path, bool]] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        found.append((Path(f"/proc/self/fd/{descriptor}").readlink(), look()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    return found


@pytest.mark.parametrize("operation", ["put", "create"])
def test_data_is_synced_before_its_name_appears_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    store = LocalStore(tmp_path, INLINE)
    run(store.put("checkpoints/0", b"makes the directories"))
    path = tmp_path / "checkpoints/1"
    found = synced(monkeypatch, path.exists)
    run(getattr(store, operation)("checkpoints/1", b"x"))
    (data, before), directory = found
    assert data.parent == tmp_path / TEMP_DIRECTORY and not before
    assert directory == (path.parent, True)


def test_new_directories_are_synced_into_their_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = synced(monkeypatch)
    run(LocalStore(tmp_path / "root", INLINE).put("a/b/c", b"x"))
    directories = {tmp_path / name for name in ("", "root", "root/a", "root/a/b")}
    assert directories <= {path for path, _ in found}


@pytest.mark.parametrize(
    ("operation", "name"), [("put", "a/new"), ("create", "a/new"), ("put", "a/old")]
)
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EACCES, AccessDeniedError),
        (errno.EROFS, AccessDeniedError),
        (errno.ESTALE, StoreUnreachableError),
        (errno.ETIMEDOUT, StoreUnreachableError),
        (errno.EIO, StorageError),
    ],
)
def test_a_failed_write_is_named_and_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    name: str,
    number: int,
    expected: type[StorageError],
) -> None:
    store = LocalStore(tmp_path, INLINE)
    run(store.put("a/old", b"old"))

    def failing(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StorageError, match=name) as raised:
        run(getattr(store, operation)(name, b"new"))
    assert type(raised.value) is expected
    assert run(names(store)) == ["a/old"] and run(store.get("a/old")) == b"old"
    assert temps(tmp_path) == []


def test_a_file_system_without_hard_links_is_refused_for_create(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", unsupported)
    with pytest.raises(ConditionalPutError, match="hard links"):
        run(LocalStore(tmp_path, INLINE).create("a", b"x"))


def test_a_directory_that_refuses_links_and_all_else_is_not_blamed_for_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    monkeypatch.setattr(local, "access", lambda *_: False)  # as where `chattr +i` was called
    with pytest.raises(StorageError, match="not permitted") as raised:
        run(LocalStore(tmp_path, INLINE).create("a", b"x"))
    assert "hard links" not in str(raised.value)


def test_a_store_that_was_removed_or_unmounted_meanwhile_is_named_and_not_begun_anew(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path / "store", INLINE)
    run(store.put("a", b"1"))
    (tmp_path / "store").rename(tmp_path / "away")
    with pytest.raises(StorageError, match="bring the store back") as found:
        run(store.put("b", b"2"))
    assert not found.value.retry_safe
    assert not (tmp_path / "store").exists()


def test_a_name_below_an_object_cannot_be_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, INLINE)
    run(store.put("a", b"x"))
    with pytest.raises(StorageError, match="a/b"):
        run(store.put("a/b", b"x"))


@pytest.mark.parametrize(
    "name", ["../outside", "/outside", "a/../../outside", f"{TEMP_DIRECTORY}/x"]
)
@pytest.mark.parametrize("operation", ["put", "create", "get", "head", "delete"])
def test_no_name_leads_out_of_the_store(tmp_path: Path, operation: str, name: str) -> None:
    store = LocalStore(tmp_path / "store", INLINE)
    (tmp_path / "outside").write_text("untouched")
    data = [b"x"] if operation in {"put", "create"} else []
    with pytest.raises(ConfigError, match="object name"):
        run(getattr(store, operation)(name, *data))
    assert (tmp_path / "outside").read_text() == "untouched"


def test_leftovers_of_dead_writers_are_never_listed_and_are_removed_by_the_next_writer(
    tmp_path: Path,
) -> None:
    host = platform.node()
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    dead = f"{host}-{ended.pid}-0000000000000001"
    before_us = f"{host}-{os.getpid()}-0000000000000004"  # in a container all have one number
    running = f"{host}-{os.getppid()}-0000000000000002"
    elsewhere = f"another-host-{ended.pid}-0000000000000003"
    (tmp_path / TEMP_DIRECTORY).mkdir()
    abandoned = "container-of-yesterday-1-0000000000000005"
    for leftover in (dead, before_us, running, elsewhere, abandoned):
        (tmp_path / TEMP_DIRECTORY / leftover).write_text("half an obj")
    two_days_ago = (tmp_path / TEMP_DIRECTORY).stat().st_mtime - 2 * 86_400
    os.utime(tmp_path / TEMP_DIRECTORY / abandoned, (two_days_ago, two_days_ago))
    store = LocalStore(tmp_path, INLINE)
    assert run(names(store)) == []
    run(store.put("a", b"x"))
    assert run(names(store)) == ["a"]
    assert temps(tmp_path) == sorted([running, elsewhere])


def test_an_object_deleted_during_a_list_does_not_break_it(tmp_path: Path) -> None:
    async def main() -> list[str]:
        store = LocalStore(tmp_path, INLINE, durable=False)
        for number in range(2001):
            (tmp_path / f"{number:05d}").touch()
        listed = []
        async for info in store.list(""):
            listed.append(info.name)
            await store.delete("02000")
        return listed

    assert run(main()) == [f"{number:05d}" for number in range(2000)]
