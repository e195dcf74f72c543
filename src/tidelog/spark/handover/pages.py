"""The rows of a query's operators, read from its checkpoint through Spark's `statestore`.

Invariants: rows are those of one committed batch; a page that a root refers to and that is not
there is an error, never fewer rows. A task reads the pages of one key group after the other.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from tidelog.errors import ConfigError, CorruptObjectError
from tidelog.spark.operators.layout import GROUP, Row, pages_name, state_name, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE_COLUMNS: Final = "key_group int, depth int, number int, page binary"
"""A row for the root of each key group, without a number, and one for each other page."""


class GroupFacts(NamedTuple):
    """What is known of a key group besides its rows."""

    watermark: int | None
    seqno: int
    """Above the numbers of all of its changes."""
    times: bytes | None = None
    """What is known of the splits of the sources; in each key group the same."""


class GroupRows(NamedTuple):
    """The rows of a key group."""

    key_group: int
    rows: Iterator[Row]
    """Ascending by entry; to be read before the next group is asked for."""


@dataclass(frozen=True, slots=True)
class StoredOperator:
    """An operator of a query after a batch; `number` is what Spark calls it."""

    location: str
    name: str
    number: int
    batch: int

    def load(self, spark: "SparkSession", variable: str) -> "DataFrame":
        """A state variable, read by Spark's own data source."""
        # State is read with the coordinator of stores, which Spark 4.1 has with its first query or
        # when it is asked for its queries.
        _ = spark.streams
        reader = spark.read.format("statestore").option("operatorId", self.number)
        reader = reader.option("batchId", self.batch).option("stateVarName", variable)
        return reader.load(self.location)


def operator_numbers(spark: "SparkSession", checkpoint: str) -> dict[str, int]:
    """Spark's numbers of a query's operators, by the job's names; raises ConfigError for none."""
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


def facts_of(spark: "SparkSession", operator: StoredOperator) -> dict[int, GroupFacts]:
    """What is known of each key group that has rows."""
    roots = operator.load(spark, state_name(operator.name))
    columns = f"key.{GROUP} AS key_group", "value.watermark", "value.seqno", "value.times"
    facts: dict[int, GroupFacts] = {}
    for group, watermark, seqno, times in roots.selectExpr(*columns).collect():
        facts[group] = GroupFacts(watermark, seqno or 0, None if times is None else bytes(times))
    return facts


def pages_of(spark: "SparkSession", operator: StoredOperator) -> "DataFrame":
    """All pages of an operator, with `PAGE_COLUMNS`, in no order."""
    roots = operator.load(spark, state_name(operator.name)).selectExpr(
        *(f"key.{GROUP} AS key_group", "value.depth", "CAST(NULL AS INT) AS number"),
        "value.root AS page",
    )
    pages = operator.load(spark, pages_name(operator.name)).selectExpr(
        *(f"key.{GROUP} AS key_group", "CAST(NULL AS INT) AS depth"),
        *("user_map_key.number", "user_map_value.page"),
    )
    return roots.unionByName(pages)


def groups_of(batches: Iterable[pa.RecordBatch], operator: str) -> Iterator[GroupRows]:
    """The key groups of rows with `PAGE_COLUMNS`, whose rows follow each other.

    Raises CorruptObjectError for pages that do not belong together.
    """
    current: int | None = None
    page_rows: list[dict[str, Any]] = []
    for batch in batches:
        for row in batch.to_pylist():
            if row["key_group"] != current and page_rows:
                yield _group(page_rows, operator)
                page_rows = []
            current = row["key_group"]
            page_rows.append(row)
    if page_rows:
        yield _group(page_rows, operator)


def _group(page_rows: list[dict[str, Any]], operator: str) -> GroupRows:
    group = page_rows[0]["key_group"]
    roots = [row for row in page_rows if row["number"] is None]
    pages = {row["number"]: row["page"] for row in page_rows if row["number"] is not None}
    what = f"key group {group} of operator {operator!r}"
    if len(roots) != 1:
        raise _damaged(what, "one root", f"{len(roots)}, and {len(pages)} other pages")
    (root,) = roots
    rows = _rows(what, root["page"] or b"", root["depth"] or 0, pages)
    return GroupRows(group, rows)


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


def _damaged(what: str, expected: str, actual: str) -> CorruptObjectError:
    return CorruptObjectError(
        what,
        expected=expected,
        found=actual,
        action="go back to an earlier batch of the query's checkpoint, or to a backup of it",
    )
