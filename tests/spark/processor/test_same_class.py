"""The same class in a real Spark says and keeps what it says and keeps embedded."""

import json
import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog.spark
from tests.spark.processor.functions import NUMBERS, Chain, Keeper
from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.support.cli import tidelog as command
from tests.support.depth import more_in_depth
from tidelog.examples.outages import DEVICES, outages, write_readings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ByDevice = dict[str, Any]
KEEPER_OUT = "k string, what string, found string"


@pytest.fixture(autouse=True)
def few_partitions(spark: "SparkSession") -> None:
    """Every partition is a task of its own for Python."""
    spark.conf.set("spark.sql.shuffle.partitions", more_in_depth("1", "3"))


def run(frame: "DataFrame", place: Place, **settings: str) -> None:
    """Run a query over all files there are; another call is a restart."""

    def write(rows: "DataFrame", batch: int) -> None:
        place.write(batch, [row.asDict(recursive=True) for row in rows.collect()])

    for key, value in settings.items():
        frame.sparkSession.conf.set(f"spark.sql.streaming.{key}", value)
    writer = frame.writeStream.outputMode("append").foreachBatch(write)
    writer = writer.option("checkpointLocation", str(place.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def write_readings_of(directory: Path, devices: int) -> None:
    """Made-up readings, only of the first devices; outside of deep runs in half as many files."""
    write_readings(directory)
    files = sorted(directory.iterdir())
    together = more_in_depth(2, 1)
    for at in range(0, len(files), together):
        group = files[at : at + together]
        lines = [line for file in group for line in file.read_text().splitlines()]
        changed = group[0].stat().st_mtime
        for file in group:
            file.unlink()
        kept = [line for line in lines if int(json.loads(line)["device"][-2:]) < devices]
        group[0].write_text("".join(f"{line}\n" for line in kept))
        os.utime(group[0], (changed, changed))  # Spark reads files in the order of their times.


def by_device(rows: list[dict[str, Any]]) -> ByDevice:
    found = defaultdict(list)
    for row in rows:
        found[row["device"]].append(row)
    return dict(found)


def state_on_spark(spark: "SparkSession", place: Place) -> dict[str, ByDevice]:
    """Each state by device, from Spark's state data source."""

    def read(**options: str) -> Any:
        reader = spark.read.format("statestore").options(**options)
        return reader.load(str(place.checkpoint)).collect()

    waiting: ByDevice = defaultdict(dict)
    for row in read(stateVarName="waiting"):
        waiting[row.key.device][row.user_map_key.time_ms] = row.user_map_value.value
    recent: ByDevice = defaultdict(list)
    for row in read(stateVarName="recent"):
        recent[row.key.device].append(row.list_element.value)
    known = {row.key.device: list(row.value) for row in read(stateVarName="known")}
    return {"waiting": dict(waiting), "recent": dict(recent), "known": known}


def state_embedded(store: Path, target: Path) -> dict[str, ByDevice]:
    """The same of the embedded job, from tidelog's own restore."""
    options = ("--to", target, "--format", "jsonl", "--operator", "outages")
    assert command("restore", store, *options).exit_code == 0
    state: dict[str, Any] = {"waiting": defaultdict(dict), "recent": {}, "known": {}}
    recent: ByDevice = defaultdict(dict)
    for path in target.glob("*.jsonl"):
        for row in map(json.loads, path.read_text().splitlines()):
            key, value = row["key"], row["value"]
            match row["state"]:
                case "waiting":
                    state["waiting"][key][row["entry"]["time_ms"]] = value["value"]
                case "recent":
                    recent[key][row["entry"]] = [element["value"] for element in value]
                case "known":
                    state["known"][key] = list(value.values())
    for device, rows in recent.items():
        state["recent"][device] = [value for at in sorted(rows) for value in rows[at]]
    return {name: dict(held) for name, held in state.items()}


def test_outages_are_found_and_kept_alike_though_the_query_restarts_in_the_middle(
    spark: "SparkSession", place: Place, tmp_path: Path, has_plugin: bool
) -> None:
    readings, some = tmp_path / "readings", tmp_path / "some"
    devices = more_in_depth(10, DEVICES)
    write_readings_of(readings, devices)
    some.mkdir()
    files = sorted(readings.iterdir())
    for part in (files[:2], files[2:]):
        for file in part:
            shutil.copy2(file, some)
        run(outages(spark, str(some)), place)
    store = tmp_path / "store"
    arguments = ("--input", readings, "--store", store, "--output", tmp_path / "embedded")
    job = "tidelog.examples.outages:job"
    assert command("run", job, *arguments).exit_code == 0
    lines = [
        json.loads(line)
        for path in (tmp_path / "embedded").rglob("*")
        if path.is_file() and not path.name.startswith((".", "_"))
        for line in path.read_text().splitlines()
    ]
    assert len(lines) > more_in_depth(5, 10)
    assert by_device(place.rows()) == by_device(lines)
    ours, theirs = state_embedded(store, tmp_path / "restored"), state_on_spark(spark, place)
    assert len(ours["known"]) == devices
    assert ours["waiting"]
    assert theirs == ours
    if has_plugin:
        assert_complete(place.checkpoint)


def test_values_of_every_type_come_back_as_they_were_written(
    spark: "SparkSession", place: Place
) -> None:
    def query() -> "DataFrame":
        schema = "k binary, l bigint, batch int, inner struct<n:int>"
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return tidelog.spark.transform(
            reader.json(str(place.source("events"))).selectExpr("*", "decode(k, 'UTF-8') word"),
            Keeper,
            key=["word", "l", "k"],
            output_schema=KEEPER_OUT,
            time_mode="processing",
        )

    for batch in range(2):
        place.add("events", [{"k": "YQ==", "l": 7, "batch": batch, "inner": {"n": 9}}])
        run(query(), place, **{"noDataMicroBatches.enabled": "false"})
    found = {row["what"]: row["found"] for row in place.rows()}
    assert found == {
        **dict.fromkeys(("values", "list", "map", "keys", "order", "lasts", "expires", "top"), ""),
        "key": "('a', 7, b'a')",
        "rows": "[9]",
    }
    reader = spark.read.format("statestore").option("stateVarName", "order")
    kept = [row.user_map_key.n for row in reader.load(str(place.checkpoint)).collect()]
    assert sorted(kept) == sorted(number + 1 for number in NUMBERS)


def chain(spark: "SparkSession", place: Place) -> "DataFrame":
    reader = spark.readStream.schema("k string, at bigint").option("maxFilesPerTrigger", 1)
    return tidelog.spark.transform(
        reader.json(str(place.source("events"))),
        Chain,
        key="k",
        output_schema="k string, fired bigint, left array<bigint>",
        time_mode="event",
        event_time="at",
        max_delay_ms=100,
    )


def test_timers_that_are_deleted_do_not_fire_and_rows_count_that_are_as_late_as_allowed(
    spark: "SparkSession", place: Place
) -> None:
    place.add("events", [{"k": "a", "at": 1_000}, {"k": "b", "at": 2_000}])
    # A watermark counts for late rows in the second batch after the row that has moved it.
    for late in ({"c": 500_000}, {"next": 500_000}, {"allowed": 499_900, "late": 499_899}):
        place.add("events", [{"k": key, "at": at} for key, at in late.items()])
    run(chain(spark, place), place)
    rows = defaultdict(list)
    for row in place.rows():
        rows[row["k"]].append((row["fired"], row["left"]))
    assert set(rows) == {"a", "b"}
    for key, at in (("a", 1_000), ("b", 2_000)):
        last = at + 1_000_000
        assert rows[key] == [
            (at + 1, [at + 1, at + 3, at + 4, at + 5, last]),
            (at + 3, [at + 3, at + 5, last]),
            (at + 5, [at + 5, last]),
        ]
    reader = spark.read.format("statestore").option("readRegisteredTimers", "true")
    timers = reader.load(str(place.checkpoint)).collect()
    assert {row.key.k for row in timers} == {"a", "b", "c", "next", "allowed"}
