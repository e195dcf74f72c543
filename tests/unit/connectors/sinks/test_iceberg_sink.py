"""The Iceberg sink: what readers of a table see, whenever they look and whatever crashed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, UnknownTransform, VoidTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from tests.support.iceberg import Lake
from tests.unit.connectors.sinks import job
from tests.unit.connectors.sinks.job import context
from tidelog import IcebergSink, Row
from tidelog.errors import ConfigError, FencedError, RestoreError, StorageError, UserFunctionError

TABLE = "lake.numbers"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.create(TABLE, n="long")
    return made


def sink(lake: Lake, table: str = TABLE) -> IcebergSink:
    return IcebergSink(lake.catalog, table)


def shown(lake: Lake) -> list[int]:
    return sorted(row["n"] for row in lake.rows(TABLE))


pre_committed = partial(job.pre_committed, usual=[(1,), (2,)])


def test_a_commit_is_done_once_also_when_its_snapshot_has_expired(lake: Lake) -> None:
    writer = sink(lake).open(context())
    transaction = pre_committed(writer)
    assert (shown(lake), len(lake.unreferenced(TABLE))) == ([], 1)
    for _ in range(2):
        writer.commit(transaction)
    table = lake.table(TABLE)
    table.append(pa.table({"n": [7]}))
    for snapshot in table.snapshots()[:-1]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    sink(lake).open(context(generation=2)).recover([transaction])
    assert shown(lake) == [1, 2, 7]
    found = [snapshot.summary for snapshot in lake.table(TABLE).snapshots()]
    assert "tidelog.transactions" not in {key for s in found for key in s.additional_properties}


@pytest.mark.parametrize("merges", ["false", "true"])
def test_a_commit_that_meets_another_writers_is_made_again(
    merges: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    merging = {"commit.manifest-merge.enabled": merges, "commit.manifest.min-count-to-merge": "2"}
    lake.table(TABLE).transaction().set_properties(merging).commit_transaction()
    writer = sink(lake).open(context())
    transaction = pre_committed(writer)
    left = iter(range(3))
    commit = SqlCatalog.commit_table

    def behind_another(*args: Any) -> Any:
        if (other := next(left, None)) is not None:
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(SqlCatalog, "commit_table", commit)
                lake.table(TABLE).append(pa.table({"n": [100 + other]}))
        return commit(*args)

    monkeypatch.setattr(SqlCatalog, "commit_table", behind_another)
    writer.commit(transaction)
    assert shown(lake) == [1, 2, 100, 101, 102]
    manifests = lake.table(TABLE).current_snapshot().manifests(lake.table(TABLE).io)
    assert len(manifests) == (1 if merges == "true" else 4)
    # What the attempts wrote that failed is gone: a manifest list of each snapshot, no more.
    lists = list((lake.location(TABLE) / "metadata").glob("snap-*"))
    assert len(lists) == len(lake.table(TABLE).snapshots()) == 5


@pytest.mark.parametrize("columns", [{"n": "string"}, {"word": "long"}], ids=["type", "name"])
def test_files_for_a_table_that_was_made_again_with_other_columns_are_an_error(
    columns: dict[str, str], lake: Lake
) -> None:
    transaction = pre_committed(sink(lake).open(context()))
    lake.drop(TABLE)
    lake.create(TABLE, **columns)
    for generation in (2, 3):
        writer = sink(lake).open(context(generation))
        with pytest.raises(RestoreError, match=r"columns that .* has or had; found n long.*clone"):
            writer.recover([transaction])
    assert lake.rows(TABLE) == []


def test_files_are_for_the_columns_that_the_table_had_when_they_were_written(lake: Lake) -> None:
    lake.create("lake.words", n="int", word="uuid")
    transaction = pre_committed(sink(lake, "lake.words").open(context()), 1, (1, UUID(int=1)))
    with lake.table("lake.words").update_schema() as change:
        change.rename_column("n", "number")
        change.update_column("n", LongType())
        change.delete_column("word")
    sink(lake, "lake.words").open(context(generation=2)).recover([transaction])
    assert lake.rows("lake.words") == [{"number": 1}]


def test_a_table_that_is_made_again_while_a_job_writes_to_it_is_an_error(lake: Lake) -> None:
    writer = sink(lake).open(context())
    transaction = pre_committed(writer)
    lake.drop(TABLE)
    lake.create(TABLE, n="long")
    with pytest.raises(ConfigError, match=r"another one by its name\. Next: start the job again"):
        writer.commit(transaction)
    sink(lake).open(context(generation=2)).recover([transaction])
    assert shown(lake) == [1, 2]


def test_a_renamed_sink_commits_once_what_was_written_under_its_old_name(lake: Lake) -> None:
    writer = sink(lake).open(context())
    first, second = pre_committed(writer), pre_committed(writer, 2, (3,))
    writer.commit(first)
    renamed = replace(context(generation=2), name="other", retained_transactions=(first, second))
    for _ in range(2):
        sink(lake).open(renamed).recover([first, second])
    assert (shown(lake), lake.announced(TABLE)) == ([1, 2, 3], [])


def test_an_older_start_commits_nothing_once_a_newer_one_has_begun(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last moment: the older one has looked at the table, and asks the catalogue now."""
    older = sink(lake).open(context())
    transaction = pre_committed(older)
    commit, newer = SqlCatalog.commit_table, []

    def late(*args: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        newer.append(sink(lake).open(context(generation=2)))
        newer[0].recover([])
        return commit(*args)

    monkeypatch.setattr(SqlCatalog, "commit_table", late)
    with pytest.raises(
        FencedError, match=r"start 1-a of .* the table's property .*found start 2-a"
    ):
        older.commit(transaction)
    assert shown(lake) == []
    with pytest.raises(FencedError, match=r"remove_properties\('tidelog.job/sink.generation'\)"):
        sink(lake).open(context())
    newer[0].commit(pre_committed(newer[0]))
    assert shown(lake) == [1, 2]


def test_subtasks_that_are_ready_together_share_a_snapshot(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = sink(lake)
    writers = [shared.open(context(subtask=subtask)) for subtask in range(4)]
    tokens = [pre_committed(writer, 1, (n,)) for n, writer in enumerate(writers)]
    commit = SqlCatalog.commit_table

    def when_all_wait(*args: Any) -> Any:
        while len(shared._commits._waiting) < 4:
            pass
        monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        return commit(*args)

    monkeypatch.setattr(SqlCatalog, "commit_table", when_all_wait)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda pair: pair[0].commit(pair[1]), zip(writers, tokens, strict=True)))
    assert shown(lake) == [0, 1, 2, 3]
    assert len(lake.table(TABLE).snapshots()) == 3, "a start, the first commit, all others"
    for writer, token in zip(writers, tokens, strict=True):
        writer.commit(token)
    assert (shown(lake), lake.announced(TABLE)) == ([0, 1, 2, 3], [])


def test_a_partitioned_table_gets_its_values_by_partition(lake: Lake) -> None:
    fields = [
        NestedField(1, "day", DateType()),
        NestedField(2, "country", StringType()),
        NestedField(3, "price", DecimalType(9, 2)),
        NestedField(4, "at", TimestamptzType()),
    ]
    parts = [PartitionField(at, 1000 + at, IdentityTransform(), f"part-{at}") for at in range(1, 5)]
    catalog = lake.table(TABLE).catalog
    catalog.create_table("lake.parts", Schema(*fields), partition_spec=PartitionSpec(*parts))
    rows = [
        {
            "day": date(2026, 3, day),
            "country": country,
            "price": Decimal(f"{day}.00"),
            "at": datetime(2026, 3, day, tzinfo=UTC),
        }
        for day in (1, 2)
        for country in ("at", "b/c", None)
    ]
    writer = sink(lake, "lake.parts").open(context())
    transaction = pre_committed(writer, 1, *rows)
    sink(lake, "lake.parts").open(context(2)).recover([transaction])
    table = lake.table("lake.parts")
    for row_filter in ("country = 'b/c'", "country is null", "at >= '2026-03-02T00:00:00+00:00'"):
        tasks = list(table.scan(row_filter=row_filter).plan_files())
        assert len(tasks) == (3 if "at >=" in row_filter else 2)
    found = [
        {**row, "at": row["at"].astimezone(UTC)} for row in table.scan().to_arrow().to_pylist()
    ]
    assert sorted(map(str, found)) == sorted(map(str, rows))


def test_values_of_all_kinds_arrive(lake: Lake) -> None:
    nested = {
        "row": StructType(NestedField(11, "x", LongType()), NestedField(12, "y", StringType())),
        "map": MapType(13, StringType(), 14, LongType(), value_required=False),
        "list": ListType(15, StringType(), element_required=False),
    }
    lake.create("lake.kinds", day="date", id="uuid", small="int", at="timestamptz", **nested)
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    writer = sink(lake, "lake.kinds").open(context())
    row = Row(
        day=date(2026, 1, 1),
        id=UUID(int=5),
        small=-3,
        at=at,
        row=Row(x=1, y="a"),
        map={"a": 1, "b": None},
        list=("c", None),
    )
    writer.commit(pre_committed(writer, 1, row, {"small": 1}))
    first, second = sorted(lake.rows("lake.kinds"), key=lambda row: row["small"])
    assert (first["day"], first["id"], first["small"], first["at"]) == (row.day, row.id, -3, at)
    assert (first["row"], dict(first["map"]), first["list"]) == (
        {"x": 1, "y": "a"},
        {"a": 1, "b": None},
        ["c", None],
    )
    assert [value for value in second.values() if value is not None] == [1]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (("x", "b"), r"column 'n'; expected a value of type int64, required; found 'x'"),
        ((None, "b"), r"column 'n'; .*required; found None"),
        ((2**63, "b"), r"column 'n'; .*found 9223372036854775808"),
        ((1, 2), r"column 's'; expected a value of type large_string; found 2"),
        ({"s": "a"}, r"the columns \('n', 's'\), of which \('s',\) may .*found fields \('s',"),
        (Row(n=1, z=2), r"found fields \('n', 'z'\)"),
        ((1,), "found 1 value"),
        (7, "found a int"),
    ],
)
def test_a_record_that_does_not_fit_is_an_error_with_its_column(
    record: Any, message: str, lake: Lake
) -> None:
    lake.create("lake.strict", required=("n",), n="long", s="string")
    writer = sink(lake, "lake.strict").open(context())
    with pytest.raises(UserFunctionError, match=rf"table 'lake.strict'.*{message}"):
        writer.write([(1, "a"), record])
    writer.commit(pre_committed(writer, 1, (5, "good")))
    assert lake.rows("lake.strict") == [{"n": 5, "s": "good"}]


@pytest.mark.parametrize("value", [{"x": None}, {}, {"x": [None]}, {"x": [{"k": None}]}])
def test_what_must_have_a_value_within_another_is_an_error_with_its_column(
    value: Any, lake: Lake
) -> None:
    of_text = MapType(4, StringType(), 5, StringType(), value_required=True)
    texts = ListType(3, of_text, element_required=True)
    lake.create("lake.deep", s=StructType(NestedField(2, "x", texts, required=True)))
    writer = sink(lake, "lake.deep").open(context())
    with pytest.raises(UserFunctionError, match=r"column 's'; expected .* not null"):
        writer.write([(value,)])
    writer.commit(pre_committed(writer, 1, ({"x": [{"k": "v"}]},)))
    assert lake.rows("lake.deep") == [{"s": {"x": [[("k", "v")]]}}]


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[4][0].__setitem__(0, "file:///etc/passwd"),
        lambda token: token[4][0].__setitem__(0, token[4][0][0] + "/../../../x"),
        lambda token: token[1].__setitem__(3, "../.."),
        lambda token: token[1].__setitem__(0, "other/sink"),
    ],
)
def test_a_forged_transaction_is_refused(change: Callable[[list[Any]], object], lake: Lake) -> None:
    writer = sink(lake).open(context())
    token = msgspec.msgpack.decode(pre_committed(writer))
    change(token)
    for forged in (msgspec.msgpack.encode(token), b"\x93\x01\x02\x03"):
        with pytest.raises(RestoreError, match="a transaction of sink 'job/sink'"):
            writer.commit(forged)


def test_a_data_file_that_is_gone_is_an_error_before_the_table_names_it(lake: Lake) -> None:
    transaction = pre_committed(sink(lake).open(context()))
    [file] = lake.unreferenced(TABLE)
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(StorageError, match=f"{file.name} of transaction .*bring it back"):
        sink(lake).open(context(2)).recover([transaction])
    file.write_bytes(content)
    sink(lake).open(context(3)).recover([transaction])
    assert shown(lake) == [1, 2]


def test_a_spec_that_changed_meanwhile_is_an_error(lake: Lake) -> None:
    writer = sink(lake).open(context())
    transaction = pre_committed(writer)
    with lake.table(TABLE).update_spec() as update:
        update.add_identity("n")
    with pytest.raises(RestoreError, match=r"partition spec 1; found 'lake.numbers' .* spec 0"):
        writer.commit(transaction)


def test_a_committed_transaction_whose_announcement_stayed_keeps_its_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a crash between the commit and its tidying leaves it."""
    writer = sink(lake).open(context())
    transaction = pre_committed(writer)
    with monkeypatch.context() as killed:
        killed.setattr("tidelog.connectors.iceberg.staged.SinkDirectory.settled", lambda *_: None)
        writer.commit(transaction)
    assert len(lake.announced(TABLE)) == 1
    for generation in (2, 3):  # no checkpoint names it any more
        sink(lake).open(context(generation)).recover([])
    assert (shown(lake), lake.announced(TABLE), lake.recorded(TABLE)) == ([1, 2], [], [])


def test_a_table_that_is_not_there_is_an_error(lake: Lake) -> None:
    with pytest.raises(ConfigError, match=r"Iceberg table 'lake.none'; .*create it with the"):
        sink(lake, "lake.none").open(context())
    with pytest.raises(ConfigError, match="a namespace and a name"):
        sink(lake, "numbers")


def partitioned(lake: Lake, kind: Any, transform: Any) -> None:
    """A table `lake.parts` with a column `part` of this type, and a partition by it."""
    schema = Schema(NestedField(1, "part", kind), NestedField(2, "n", LongType()))
    spec = PartitionSpec(PartitionField(1, 1001, transform, "by"))
    lake.table(TABLE).catalog.create_table("lake.parts", schema, partition_spec=spec)


@pytest.mark.parametrize("transform", [IdentityTransform(), VoidTransform(), UnknownTransform("x")])
def test_a_partition_that_the_library_cannot_make_is_refused_at_the_start(
    lake: Lake, transform: Any
) -> None:
    partitioned(lake, UUIDType(), transform)
    told = r"'lake.parts', partition 'by' by .* of column 'part'; .*partition the table by another"
    with pytest.raises(ConfigError, match=told):
        sink(lake, "lake.parts").open(context())


def test_a_value_of_which_the_library_makes_no_partition_is_refused_with_its_record(
    lake: Lake,
) -> None:
    partitioned(lake, DoubleType(), IdentityTransform())
    writer = sink(lake, "lake.parts").open(context())
    with pytest.raises(UserFunctionError, match=r"column 'part'.*no partition of NaN"):
        writer.write([(0.5, 1), (float("nan"), 2)])
    writer.commit(pre_committed(writer, 1, (0.5, 1), (None, 2)))
    assert [row["n"] for row in lake.rows("lake.parts")] == [1, 2]


def test_a_partition_by_a_column_of_a_struct_is_made_and_its_nan_refused(lake: Lake) -> None:
    place = StructType(NestedField(2, "depth", DoubleType()), NestedField(3, "name", StringType()))
    schema = Schema(NestedField(1, "place", place), NestedField(4, "n", LongType()))
    spec = PartitionSpec(PartitionField(2, 1001, IdentityTransform(), "by"))
    lake.table(TABLE).catalog.create_table("lake.places", schema, partition_spec=spec)
    writer = sink(lake, "lake.places").open(context())
    with pytest.raises(UserFunctionError, match=r"column 'place.depth'.*no partition of NaN"):
        writer.write([({"depth": float("nan"), "name": "quay"}, 1)])
    rows = [({"depth": 0.5}, 1), (None, 2), ({"depth": None, "name": "quay"}, 3)]
    writer.commit(pre_committed(writer, 1, *rows))
    assert sorted(row["n"] for row in lake.rows("lake.places")) == [1, 2, 3]
