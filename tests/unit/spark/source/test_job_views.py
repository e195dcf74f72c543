"""The views of a store agree with what the other readers of the same store say.

What a running job or query drops while it is read is an error with the reason, never no rows.

Stores on S3 and encrypted ones are read like those on disk.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from tests.support.cli import lay_out, tidelog
from tests.support.damage import checkpoint_in, damaged, flipped, last_segment, missing, truncated
from tests.support.jobs import (
    Dropping,
    config,
    contents,
    every_kind,
    filled,
    run,
    run_until_break,
    store_of,
    word_count,
)
from tests.unit.spark.source.reading import Row, bag, batches, planned, read, request
from tests.unit.spark.synthetic import Synthetic
from tests.unit.storage.encryption.test_sealed import EFFECTS, FIRST, key_file
from tests.unit.verify.stores import needed_by, small, with_objects, with_subtask
from tests.wire.servers import S3Server
from tidelog import (
    ConfigError,
    CorruptObjectError,
    MaterializeConfig,
    ObjectNotFoundError,
    RestoreError,
    UploadConfig,
    ValueState,
    open_store,
)
from tidelog import open as open_state
from tidelog.catalog.gc import plan_gc
from tidelog.changelog.segment import read_footer
from tidelog.checkpoint.manifest import encode_entry
from tidelog.ids import Slot
from tidelog.spark.source.datasource import BatchReader
from tidelog.spark.source.job.listings import plan_objects
from tidelog.spark.source.parts import Listing, ReadRequest
from tidelog.spark.source.views import VIEWS
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

CHECKPOINTS = (7, 8, 9)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("store"), filled())


@pytest.fixture(scope="module")
def inline_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose manifests hold the tails of the log; its memory tables have few rows."""
    memory = MemoryStore()
    settings = config(upload=UploadConfig(inline_bytes=600), table="memory")
    run(memory, word_count(), settings)
    return lay_out(tmp_path_factory.mktemp("inline"), contents(memory))


def printed(command: str, store: Path, *options: str) -> list[dict[str, Any]]:
    result = tidelog(command, store, "--json", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def decoded(row: Row) -> Row:
    """A decoded row in the words of `tidelog log` and `tidelog restore`."""
    texts = {name: row[f"{name}_json"] for name in ("key", "entry", "value")}
    texts["expires_ms"] = row["expires_json"]
    parts = {name: None if text is None else json.loads(text) for name, text in texts.items()}
    same = {name: row[name] for name in ("operator", "subtask", "key_group", "state")}
    return {**same, **parts, "kind": row["state_kind"]}


def without(rows: Iterable[Mapping[str, Any]], *names: str) -> Counter[str]:
    return bag({k: v for k, v in row.items() if k not in names} for row in rows)


def test_checkpoints_are_what_the_command_lists(store: Path) -> None:
    listed = json.loads(tidelog("checkpoints", "list", store, "--json").stdout)["checkpoints"]
    found = read(store, view="checkpoints")
    same = ["checkpoint", "kind", "generation", "attempt", "job", "final", "manifest_bytes"]
    same += ["log_bytes", "materialized_bytes", "inline_bytes"]
    assert bag(found, same) == bag(listed, same)
    created = {row["checkpoint"]: row["created_ms"] for row in listed}
    assert {row["checkpoint"]: row["created"].timestamp() * 1000 for row in found} == created
    checkpoint = checkpoint_in(filled(), 9)
    (newest,) = read(store, view="checkpoints", checkpoint=9)
    assert newest["operators"] == len(checkpoint.operators)
    assert newest["subtasks"] == len(list(checkpoint.subtasks()))


def test_what_a_rescaled_job_has_inherited_counts_until_it_is_materialized(tmp_path: Path) -> None:
    memory = MemoryStore()
    alone: dict[str, Any] = {
        "upload": UploadConfig(inline_bytes=600),
        "materialize": MaterializeConfig(False),
    }
    run_until_break(memory, word_count(breaks_at=200), config(parallelism=1, **alone))
    run(memory, word_count(), config(parallelism=2, **alone))
    store = lay_out(tmp_path, contents(memory))
    listed = json.loads(tidelog("checkpoints", "list", store, "--json").stdout)["checkpoints"]
    sizes = ["checkpoint", "log_bytes", "materialized_bytes", "inline_bytes"]
    assert bag(read(store, view="checkpoints"), sizes) == bag(listed, sizes)
    inline = Counter[int]()
    for row in read(store, view="blocks"):
        if (slot := object_names.slot_of(row["object"])) is not None:
            inline[slot] += row["stored_bytes"]
    assert inline == {
        slot["checkpoint"]: slot["inline_bytes"] for slot in listed if slot["inline_bytes"]
    }


def test_a_slot_that_cannot_be_read_is_a_row_that_says_so(tmp_path: Path) -> None:
    name = object_names.checkpoint(Slot(8))
    directory = lay_out(tmp_path, damaged(filled(), name, flipped))
    rows = {row["checkpoint"]: row for row in read(directory, view="checkpoints")}
    assert rows[8]["kind"] == "unreadable" and name in rows[8]["error"]
    assert rows[9]["kind"] == "checkpoint" and rows[9]["error"] is None


def test_objects_are_all_that_is_stored_with_the_checkpoints_that_need_it(store: Path) -> None:
    found = {row["name"]: row for row in read(store, view="objects")}
    assert {name: row["bytes"] for name, row in found.items()} == {
        name: len(data) for name, data in filled().items()
    }
    assert {"checkpoint", "segment", "table", "materialization"} <= {
        r["kind"] for r in found.values()
    }
    for name, row in found.items():
        if row["kind"] != "checkpoint":
            assert set(row["referenced_by"]) == needed_by(filled(), name)


def test_orphans_are_what_gc_would_delete(tmp_path: Path) -> None:
    generation = checkpoint_in(filled(), 9).author.generation
    stray = object_names.segment(generation, "late", 1)
    old = object_names.segment(generation - 4, "dead", 1)
    objects = {**filled(), stray: b"x", old: b"y", "notes.txt": b"z"}
    found = {row["name"]: row["orphan"] for row in read(lay_out(tmp_path, objects), view="objects")}
    garbage_plan = asyncio.run(plan_gc(store_of(objects)))
    assert {name for name, orphan in found.items() if orphan} == {
        o.name for o in garbage_plan.garbage
    }
    assert old in {name for name, orphan in found.items() if orphan}
    undecided = {o.name for o in garbage_plan.undecided}
    assert {name for name, orphan in found.items() if orphan is None} == undecided | {"notes.txt"}
    assert stray in undecided


@pytest.mark.parametrize("view", ["objects", "blocks"])
def test_references_that_are_unknown_are_an_error(view: str, tmp_path: Path) -> None:
    name = object_names.checkpoint(Slot(8))
    directory = lay_out(tmp_path, damaged(filled(), name, truncated))
    with pytest.raises(CorruptObjectError, match=name):
        read(directory, view=view)


def test_blocks_are_what_the_footers_say(store: Path) -> None:
    found = read(store, view="blocks")
    expected = [
        {
            "object": name,
            "offset": entry.offset,
            "operator": entry.operator,
            "subtask": entry.subtask,
            "first_seqno": entry.first,
            "changes": entry.count,
            "stored_bytes": entry.length,
            "key_group_min": entry.key_group_min,
            "key_group_max": entry.key_group_max,
        }
        for name, data in filled().items()
        if name.startswith(object_names.SEGMENTS)
        for entry in read_footer(data, name).entries
    ]
    assert bag(found, list(expected[0])) == bag(expected)
    assert {row["kind"] for row in found} == {"changes", "metadata"}
    assert all(row["raw_bytes"] > 0 and row["codec"] in {"none", "zstd"} for row in found)
    assert any(row["codec"] == "zstd" and row["raw_bytes"] > row["stored_bytes"] for row in found)


def test_changes_are_what_the_log_command_prints(store: Path) -> None:
    for slot in CHECKPOINTS:
        found = read(store, view="changes", checkpoint=slot, decode="true")
        log = printed("log", store, "--checkpoint", str(slot))
        assert found and {line["encoding"] for line in log} == {"decoded"}
        rows = (decoded(row) | {n: row[n] for n in ("checkpoint", "seqno", "op")} for row in found)
        assert bag(rows) == without(log, "encoding")


def test_changes_within_manifests_are_changes_too(inline_store: Path) -> None:
    found = read(inline_store, view="changes", checkpoint="all")
    assert any(object_names.slot_of(row["object"]) is not None for row in found)
    slots = sorted({row["checkpoint"] for row in found})
    assert len(slots) > 1
    for slot in slots:
        log = printed("log", inline_store, "--checkpoint", str(slot))
        same = ["operator", "subtask", "seqno", "op", "key_group", "state"]
        assert bag([r for r in found if r["checkpoint"] == slot], same) == bag(log, same)


def test_a_delete_is_a_change_without_a_value(tmp_path: Path) -> None:
    memory = MemoryStore()
    run(memory, every_kind(timer_ms=1), config())
    directory = lay_out(tmp_path, contents(memory))
    deletes = [row for row in read(directory, view="changes") if row["op"] == "delete"]
    assert deletes and all(row["value"] is None for row in deletes)
    log = [line for line in printed("log", directory) if line["op"] == "delete"]
    assert bag(deletes, ["seqno", "subtask"]) == bag(log, ["seqno", "subtask"])


def test_state_is_what_a_restore_writes(store: Path, inline_store: Path, tmp_path: Path) -> None:
    """Of tables of RocksDB, and of tables in memory."""
    for number, (location, slot) in enumerate([(store, 7), (store, 9), (inline_store, "latest")]):
        to = tmp_path / str(number)
        command = ("restore", location, "--to", to, "--format", "jsonl", "--checkpoint", str(slot))
        assert tidelog(*command).exit_code == 0
        files = [file.read_text() for file in to.iterdir()]
        lines = [json.loads(line) for text in files for line in text.splitlines()]
        rows = read(location, view="state", checkpoint=slot, decode="true")
        assert rows and bag(map(decoded, rows)) == without(lines, "encoding")


def test_large_values_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    with open_state(str(tmp_path / "store"), {"text": ValueState(str)}) as db:
        for number in range(9):
            db.key(number).text.set("x" * (1 << 20))
        db.advance("t", 0)
    asked = request(tmp_path / "store", view="state")
    found = batches(asked, planned(asked))
    assert sum(batch.num_rows for batch in found) == 9 + 1  # and the position
    assert max(batch.nbytes for batch in found) < 3 << 20


def test_small_objects_can_share_a_part(store: Path) -> None:
    apart = request(store, view="changes", checkpoint="all", partitionBytes="0")
    together = request(store, view="changes", checkpoint="all", partitionBytes="1g")
    assert len(planned(together)) == 1 < len(planned(apart))
    half = sum(part.size for part in planned(apart)) // 2
    some = request(store, view="changes", checkpoint="all", partitionBytes=str(half))
    assert 1 < len(planned(some)) < len(planned(apart))
    assert bag(read(store, view="changes", checkpoint="all", partitionBytes="10k")) == bag(
        read(store, view="changes", checkpoint="all", partitionBytes="0")
    )


def test_a_slot_that_is_not_there_is_an_error(store: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="checkpoint 77"):
        read(store, view="changes", checkpoint=77)
    with pytest.raises(ObjectNotFoundError, match="option checkpoint"):
        read(store, view="state", checkpoint="77-99")
    with pytest.raises(ObjectNotFoundError, match="checkpoint 4"):
        read(store, view="state", checkpoint=4)


@pytest.mark.parametrize("damage", [flipped, truncated, missing])
@pytest.mark.parametrize("view", ["changes", "state"])
def test_a_damaged_segment_is_an_error_that_names_it(
    view: str, damage: Any, tmp_path: Path
) -> None:
    name = last_segment(filled(), 9)
    directory = lay_out(tmp_path, damaged(filled(), name, damage))
    with pytest.raises((CorruptObjectError, RestoreError), match=name):
        read(directory, view=view)


def test_a_gap_in_a_log_is_an_error_whatever_is_wanted(tmp_path: Path) -> None:
    name = object_names.checkpoint(Slot(9))
    checkpoint = checkpoint_in(filled(), 9)
    for operator, state in checkpoint.subtasks():
        checkpoint = with_subtask(checkpoint, operator.id, state.index, log=state.log[1:])
    directory = lay_out(tmp_path, {**filled(), name: encode_entry(checkpoint)})
    with pytest.raises(CorruptObjectError, match=name):
        read(directory, view="changes", seqno=0)


def read_after(location: Path, asked: ReadRequest, *gone: str) -> None:
    """Plan, delete, read: as Spark does when the job goes on in between."""
    parts = planned(asked)
    for name in gone:
        (location / name).unlink()
    for part in parts:
        list(BatchReader(asked).read(InputPartition(part)))


@pytest.mark.parametrize(
    ("view", "prefix"),
    [
        ("changes", "segments/"),
        *(("state", prefix) for prefix in ("segments/", "tables/", "materializations/")),
    ],
)
def test_a_checkpoint_dropped_since_the_plan_says_so(
    view: str, prefix: str, tmp_path: Path
) -> None:
    location = lay_out(tmp_path, filled())
    gone = [name for name in filled() if name.startswith(prefix)]
    with pytest.raises(RestoreError, match="has dropped it since, or it is lost") as raised:
        read_after(location, request(location, view=view), *gone)
    assert raised.value.what.endswith(f" of {location}")
    assert "load again" in (raised.value.action or "") and "--retain" in str(raised.value)


def test_a_checkpoint_dropped_while_objects_are_listed_is_left_out(tmp_path: Path) -> None:
    assert any(n.startswith("materializations/") and needed_by(small(), n) == {5} for n in small())
    dropped = {name for name in small() if needed_by(small(), name) == {5}}
    store = Dropping(small(), "checkpoints/00000008.json", dropped)
    rows = asyncio.run(listed(store, tmp_path))
    assert {slot for row in rows for slot in row["referenced_by"]} == {6, 7, 8}
    assert {row["name"] for row in rows} == small().keys() - dropped


def test_a_descriptor_that_a_retained_checkpoint_lacks_is_an_error(tmp_path: Path) -> None:
    lost = next(n for n in small() if n.startswith("materializations/") and needed_by(small(), n))
    store = store_of({name: data for name, data in small().items() if name != lost})
    with pytest.raises(ObjectNotFoundError, match=lost):
        asyncio.run(listed(store, tmp_path))


async def listed(store: MemoryStore, location: Path) -> list[Row]:
    (part,) = await plan_objects(store, request(location, view="objects"))
    assert isinstance(part, Listing)
    return await part.rows(store)


@pytest.fixture
def server(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in moto.env.items():
        if name != "AWS_ENDPOINT_URL":
            monkeypatch.setenv(name, value)
    return moto


def put(server: S3Server, prefix: str, objects: Mapping[str, bytes]) -> None:
    with closing(server.client()) as client:
        for name, data in objects.items():
            client.put_object(Bucket=server.bucket, Key=f"{prefix}/{name}", Body=data)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("plain"), filled())


def test_a_store_on_s3_reads_like_one_on_disk(server: S3Server, plain: Path) -> None:
    put(server, "source-job", filled())
    url = f"s3://{server.bucket}/source-job"
    for view in VIEWS:
        found = read(url, view=view, endpoint=server.endpoint)
        assert found and bag(found) == bag(read(plain, view=view))


def test_a_query_on_s3_is_read_by_its_location_in_spark(server: S3Server) -> None:
    made = Synthetic(partitions=3).virtual(3)
    put(server, "source-query", made.objects)
    found = read(f"s3a://{server.bucket}/source-query", view="objects", endpoint=server.endpoint)
    assert {row["name"] for row in found} == set(made.objects)


def test_an_encrypted_store_reads_like_a_plain_one_with_its_key(
    plain: Path, tmp_path: Path
) -> None:
    key = key_file(tmp_path / "key", FIRST)
    with_objects(
        open_store(str(tmp_path / "secret"), effects=EFFECTS, encryption_key=key), filled()
    )
    for view in VIEWS:
        found = read(tmp_path / "secret", view=view, encryptionKey=key)
        assert found and bag(found) == bag(read(plain, view=view))
    with pytest.raises(ConfigError, match="no encryption key was given"):
        read(tmp_path / "secret", view="changes")
