"""The rows of a query's operators, read from its checkpoint through Spark's `statestore`.

Invariants: rows are those of one committed batch; a page that a root refers to and that is not
there is an error, never fewer rows. A task reads the pages of one key group after the other.
"""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from tidelog.errors import ConfigError, CorruptObjectError
from tidelog.spark.operators.layout import GROUP, Row, pages_name, state_name, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP_SCHEMA: Final = "key_group int, watermark bigint, depth int, number int, page binary"
"""A row for the root of each key group, without a number, and one for each other page."""


class GroupRows(NamedTuple):
    """What is stored of a key group."""

    key_group: int
    watermark: int | None
    rows: Iterator[Row]
    """Ascending by entry; to be read before the next group is asked for."""


def operator_numbers(spark: "SparkSession", checkpoint: str) -> dict[str, int]:
    """Spark's numbers of the operators of a query, by the job's names; raises ConfigError where
    the query has none.
    """
    metadata = spark.read.format("state-metadata").load(checkpoint)
    numbers: dict[str, int] = {}
    prefix = state_name("")
    for row in metadata.select("operatorId", "operatorProperties").distinct().collect():
        properties = json.loads(row.operatorProperties or "{}")
        for variable in properties.get("stateVariables", ()):
            name = variable["stateName"]
            if name.startswith(prefix):
                numbers[name.removeprefix(prefix)] = row.operatorId
    if not numbers:
        raise ConfigError(
            f"checkpoint {checkpoint}",
            expected="that of a query with operators of a job, as `tidelog spark run` starts it",
            found="a query without any",
            action="name the checkpoint directory of such a query",
        )
    return numbers


def pages_of(
    spark: "SparkSession", checkpoint: str, operator: str, number: int, batch: int
) -> "DataFrame":
    """All pages of an operator after a batch, by `GROUP_SCHEMA`, in no order."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (heavy)

    def load(variable: str) -> "DataFrame":
        reader = spark.read.format("statestore").option("operatorId", number)
        reader = reader.option("batchId", batch).option("stateVarName", variable)
        return reader.load(checkpoint)

    key = f.col(f"key.{GROUP}").alias("key_group")
    roots = load(state_name(operator)).select(
        key,
        f.col("value.watermark").alias("watermark"),
        f.col("value.depth").alias("depth"),
        f.lit(None).cast("int").alias("number"),
        f.col("value.root").alias("page"),
    )
    pages = load(pages_name(operator)).select(
        key,
        f.lit(None).cast("bigint").alias("watermark"),
        f.lit(None).cast("int").alias("depth"),
        f.col("user_map_key.number").alias("number"),
        f.col("user_map_value.page").alias("page"),
    )
    return roots.unionByName(pages)


def groups_of(batches: Iterable[pa.RecordBatch], operator: str) -> Iterator[GroupRows]:
    """The key groups of rows by `GROUP_SCHEMA`, whose rows follow each other.

    Raises CorruptObjectError for pages that do not belong together.
    """
    current: int | None = None
    stored: list[dict[str, Any]] = []
    for batch in batches:
        for row in batch.to_pylist():
            if row["key_group"] != current and stored:
                yield _group(stored, operator)
                stored = []
            current = row["key_group"]
            stored.append(row)
    if stored:
        yield _group(stored, operator)


def _group(stored: list[dict[str, Any]], operator: str) -> GroupRows:
    group = stored[0]["key_group"]
    roots = [row for row in stored if row["number"] is None]
    pages = {row["number"]: row["page"] for row in stored if row["number"] is not None}
    what = f"key group {group} of operator {operator!r}"
    if len(roots) != 1:
        raise _damaged(what, "one root", f"{len(roots)}, and {len(pages)} other pages")
    (root,) = roots
    rows = _rows(what, root["page"] or b"", root["depth"] or 0, pages)
    return GroupRows(group, root["watermark"], rows)


def _rows(what: str, page: bytes, depth: int, pages: dict[int, bytes]) -> Iterator[Row]:
    entries = unpack(page) if page else []
    if not depth:
        yield from entries
        return
    for _, reference in entries:
        number = int.from_bytes(reference, "big")
        if number not in pages:
            raise _damaged(what, f"page {number}", "no such page")
        yield from _rows(what, pages[number], depth - 1, pages)


def _damaged(what: str, expected: str, found: str) -> CorruptObjectError:
    return CorruptObjectError(
        what,
        expected=expected,
        found=found,
        action="go back to an earlier batch of the query's checkpoint, or to a backup of it",
    )
