"""The archive: the job sees a store like any other, and its log is still there after the run."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tidelog.errors import ObjectNotFoundError
from tidelog.storage.memory import MemoryStore
from tidelog_bench.embedded.stores import Archive

LOG = "segments/00000001-p-0000000001.seg"
TABLE = "tables/00000001/a.sst"


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


def test_a_deleted_segment_is_gone_for_the_job_and_kept_for_whoever_looks_later() -> None:
    async def body() -> None:
        archive = Archive(MemoryStore())
        await archive.put(LOG, b"log")
        await archive.delete(LOG)
        assert [info.name async for info in archive.list("segments/")] == []
        with pytest.raises(ObjectNotFoundError):
            await archive.get(LOG)
        with pytest.raises(ObjectNotFoundError):
            await archive.head(LOG)
        assert await archive.inner.get(LOG) == b"log"
        assert [deletion.name for deletion in archive.deletions] == [LOG]

    run(body())


def test_a_deleted_table_file_is_removed() -> None:
    async def body() -> None:
        archive = Archive(MemoryStore())
        await archive.put(TABLE, b"rows")
        await archive.delete(TABLE)
        assert [info async for info in archive.inner.list("")] == []
        assert [deletion.name for deletion in archive.deletions] == [TABLE]

    run(body())


def test_what_is_not_deleted_is_read_as_it_was_written() -> None:
    async def body() -> None:
        archive = Archive(MemoryStore())
        await archive.create(LOG, b"0123456789")
        assert await archive.get(LOG, 2, 3) == b"234"
        assert (await archive.head(LOG)).size == 10
        assert [info.name async for info in archive.list("")] == [LOG]

    run(body())
