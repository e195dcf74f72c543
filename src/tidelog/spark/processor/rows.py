"""Rows on their way from Spark to the function.

Invariant: the function sees tidelog's `Row` with the columns it was promised, in their order, and
structs within as rows too, as the embedded JSON source makes them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tidelog.state.row import Row


def rows_of(rows: Iterable[Any], columns: Sequence[str]) -> Iterator[Row]:
    """Rows of pyspark, cut to `columns`."""
    at: list[int] | None = None
    for row in rows:
        if at is None:
            # Spark puts the key's columns first, and adds the one with the event time.
            names = list(row.__fields__)
            at = [names.index(column) for column in columns]
        yield Row.of(columns, (_nested(row[position]) for position in at))


def key_of(key: Iterable[Any]) -> tuple[Any, ...]:
    """A grouping key; Spark may hand out binary as bytearray (`pyspark.binaryAsBytes`)."""
    return tuple(bytes(part) if isinstance(part, bytearray) else part for part in key)


def _nested(value: Any) -> Any:
    if isinstance(value, dict):
        return Row.of(value, map(_nested, value.values()))
    if hasattr(value, "__fields__"):
        return Row.of(value.__fields__, map(_nested, value))
    return list(map(_nested, value)) if isinstance(value, list) else value
