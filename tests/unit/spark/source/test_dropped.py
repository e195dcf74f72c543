"""What a running job or query drops while it is read is an error with the reason, never no rows."""

import asyncio
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from tests.support.cli import lay_out
from tests.support.damage import damaged, flipped
from tests.support.jobs import filled, store_of
from tests.unit.spark.source.changelogs import content_of
from tests.unit.spark.source.reading import planned, request
from tests.unit.spark.synthetic import Synthetic
from tests.unit.verify.stores import needed_by, small
from tidelog.errors import CorruptObjectError, ObjectNotFoundError, RestoreError
from tidelog.spark.source.datasource import read_part
from tidelog.spark.source.job.listings import plan_objects
from tidelog.spark.source.parts import Listing, ReadRequest
from tidelog.storage.memory import MemoryStore


def read_after(location: Path, asked: ReadRequest, *gone: str) -> None:
    """Plan, delete, read: as Spark does when the job goes on in between."""
    parts = planned(asked)
    for name in gone:
        (location / name).unlink()
    for part in parts:
        list(read_part(asked, InputPartition(part)))


@pytest.mark.parametrize("view", ["changes", "state"])
@pytest.mark.parametrize("prefix", ["segments/", "tables/", "materializations/"])
def test_a_checkpoint_dropped_since_the_plan_says_so(
    view: str, prefix: str, tmp_path: Path
) -> None:
    if view == "changes" and prefix != "segments/":
        pytest.skip("the log is in segments alone")
    location = lay_out(tmp_path, filled())
    gone = [name for name in filled() if name.startswith(prefix)]
    with pytest.raises(RestoreError, match="has dropped it since, or it is lost") as raised:
        read_after(location, request(location, view=view), *gone)
    assert raised.value.what.endswith(f" of {location}")
    assert "load again" in (raised.value.action or "") and "--retain" in str(raised.value)


def test_a_batch_dropped_since_the_plan_says_so(tmp_path: Path) -> None:
    objects = Synthetic(content=content_of).stock(1).virtual(2).objects
    location = lay_out(tmp_path, objects)
    for gone in ("**/*.seg", "**/*.changelog"):
        names = [str(path.relative_to(location)) for path in location.glob(gone)]
        assert names
        with pytest.raises(RestoreError, match="has dropped it since") as raised:
            read_after(location, request(location, view="changes"), *names)
        assert "minBatchesToRetain" in str(raised.value)
        lay_out(location, objects)


def test_damage_is_reported_as_damage(tmp_path: Path) -> None:
    segments = [name for name in filled() if name.startswith("segments/")]
    objects = filled()
    for name in segments:
        objects = damaged(objects, name, flipped)
    location = lay_out(tmp_path, objects)
    with pytest.raises(CorruptObjectError):
        read_after(location, request(location, view="changes"))


class Dropping(MemoryStore):
    """A job drops its oldest checkpoint as soon as someone has read the newest one."""

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(name, start, length)
        if name == "checkpoints/00000008.json":
            for gone in small():
                if needed_by(small(), gone) == {5}:
                    await self.delete(gone)
        return data


def test_a_checkpoint_dropped_while_objects_are_listed_is_left_out(tmp_path: Path) -> None:
    assert any(n.startswith("materializations/") and needed_by(small(), n) == {5} for n in small())
    rows = asyncio.run(listed(Dropping(), tmp_path))
    assert {slot for row in rows for slot in row["referenced_by"]} == {6, 7, 8}
    assert {row["name"] for row in rows} == {n for n in small() if needed_by(small(), n) != {5}}


def test_a_descriptor_that_a_retained_checkpoint_lacks_is_an_error(tmp_path: Path) -> None:
    lost = next(n for n in small() if n.startswith("materializations/") and needed_by(small(), n))
    store = store_of({name: data for name, data in small().items() if name != lost})
    with pytest.raises(ObjectNotFoundError, match=lost):
        asyncio.run(listed(store, tmp_path, fill=False))


async def listed(store: MemoryStore, location: Path, *, fill: bool = True) -> list[dict]:  # type: ignore[type-arg]
    for name, data in small().items() if fill else ():
        await store.put(name, data)
    (part,) = await plan_objects(store, request(location, view="objects"))
    assert isinstance(part, Listing)
    return await part.rows(store)
