"""Tumbling, sliding and session windows, and chains of stateful operators."""

from collections import Counter, defaultdict

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.spark.support.place import Row
from tests.spark.support.zoo.query import (
    Batch,
    Query,
    Sources,
    events,
    ordered,
    records,
    single,
    with_time,
)

GAP_S = 4


def _tumbling(sources: Sources) -> DataFrame:
    return (
        with_time(sources.stream())
        .groupBy(F.window("ts", "10 seconds").alias("w"), "k")
        .agg(F.count("*").alias("n"), F.sum("v").alias("sum"))
        .select(F.col("w.start").cast("long").alias("start"), "k", "n", "sum")
    )


def _windows_of(batches: list[Batch]) -> list[Row]:
    n: Counter[tuple[int, str]] = Counter()
    total: Counter[tuple[int, str]] = Counter()
    for record in records(batches):
        start = record["t"] // 10 * 10
        n[start, record["k"]] += 1
        total[start, record["k"]] += record["v"]
    return ordered(
        [{"start": at, "k": key, "n": n[at, key], "sum": total[at, key]} for at, key in n]
    )


def _sessions(sources: Sources) -> DataFrame:
    return (
        with_time(sources.stream())
        .groupBy(F.session_window("ts", f"{GAP_S} seconds").alias("w"), "k")
        .agg(F.count("*").alias("n"))
        .select(F.col("w.start").cast("long").alias("start"), "k", "n")
    )


def _sessions_of(batches: list[Batch]) -> list[Row]:
    times = defaultdict(list)
    for record in records(batches):
        times[record["k"]].append(record["t"])
    rows: list[Row] = []
    for key, found in times.items():
        end = None
        for time in sorted(found):
            if end is None or time > end:
                rows.append({"start": time, "k": key, "n": 0})
            rows[-1]["n"] += 1
            end = time + GAP_S
    return ordered(rows)


def _windows_of_windows(sources: Sources) -> DataFrame:
    distinct = with_time(sources.stream()).dropDuplicates(["k", "ts"])
    small = distinct.groupBy(F.window("ts", "5 seconds"), "k").agg(F.count("*").alias("n"))
    return (
        small.groupBy(F.window(F.window_time("window"), "20 seconds").alias("w"), "k")
        .agg(F.sum("n").alias("n"), F.count("*").alias("parts"))
        .select(F.col("w.start").cast("long").alias("start"), "k", "n", "parts")
    )


def _windows_of_windows_of(batches: list[Batch]) -> list[Row]:
    small = Counter(
        (time // 5 * 5, key) for key, time in {(row["k"], row["t"]) for row in records(batches)}
    )
    n: Counter[tuple[int, str]] = Counter()
    parts: Counter[tuple[int, str]] = Counter()
    for (start, key), count in small.items():
        n[start // 20 * 20, key] += count
        parts[start // 20 * 20, key] += 1
    return ordered(
        [{"start": at, "k": key, "n": n[at, key], "parts": parts[at, key]} for at, key in n]
    )


QUERIES = [
    Query("tumbling_windows", _tumbling, lambda: single(events(seed=11, ends=True)), _windows_of),
    Query(
        "session_windows",
        _sessions,
        lambda: single(events(seed=13, keys=30, ends=True)),
        _sessions_of,
    ),
    Query(
        "three_stateful_operators",
        _windows_of_windows,
        lambda: single(events(seed=14, ends=True)),
        _windows_of_windows_of,
    ),
]
