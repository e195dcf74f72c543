"""Times of INT96 columns, as older writers store them: days and nanoseconds, each a number.

The library makes a number of 64 bits of them, either of microseconds, which leaves nanoseconds
out, or of nanoseconds, which only reaches from 1677 to 2262 and begins again beyond. Both
numbers are right up to 2^64, so that their difference says what microseconds have left out.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any


def int96_columns(file: Any, names: Sequence[str]) -> list[str]:
    """The paths of such columns in or within those of these names."""
    paths, parents = [], tuple(f"{name}." for name in names)
    for number in range(len(file.schema.names)):
        column = file.schema.column(number)
        is_named = column.path in names or column.path.startswith(parents)
        if column.physical_type == "INT96" and is_named:
            paths.append(column.path)
    return paths


def check_microseconds(path: Path, group: int, column: str, batch_rows: int) -> None:
    """Raises ValueError when a time in a row group has nanoseconds."""
    with _opened(path, "us") as coarse, _opened(path, "ns") as fine:
        for microseconds, nanoseconds in zip(
            _numbers(coarse, group, column, batch_rows),
            _numbers(fine, group, column, batch_rows),
            strict=True,
        ):
            compute = import_module("pyarrow.compute")
            rest = compute.subtract(nanoseconds, compute.multiply(microseconds, 1000))
            if compute.any(compute.not_equal(rest, 0)).as_py():
                number = compute.index(compute.not_equal(rest, 0), True).as_py()
                raise ValueError(f"a time with {rest[number].as_py()} nanoseconds more")


def _opened(path: Path, unit: str) -> Any:
    library = import_module("pyarrow.parquet")
    return library.ParquetFile(str(path), pre_buffer=False, coerce_int96_timestamp_unit=unit)


def _numbers(file: Any, group: int, column: str, batch_rows: int) -> Iterator[Any]:
    batches = file.iter_batches(batch_rows, row_groups=[group], columns=[column])
    for batch in batches:
        yield from _leaves(batch.column(0))


def _leaves(array: Any) -> Iterator[Any]:
    """The numbers in an array of times, at any depth."""
    pa = import_module("pyarrow")
    if pa.types.is_timestamp(array.type):
        yield array.view(pa.int64())
    elif pa.types.is_nested(array.type):
        for child in array.flatten() if pa.types.is_struct(array.type) else _children(array):
            yield from _leaves(child)


def _children(array: Any) -> list[Any]:
    if import_module("pyarrow").types.is_map(array.type):
        return [array.keys, array.items]
    return [array.flatten()]
