"""The partitions of a table of Iceberg: what the library can make of them.

Invariant: what would fail with every checkpoint is refused before the job begins, and a value of
which there is no partition when its record is written.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tidelog.errors import ConfigError


def check_partitions(table: Any, where: str) -> None:
    """Raises ConfigError for a partition that the library cannot make, or not as it is installed:
    what it would do with every checkpoint is done with one value.
    """
    not_installed = import_module("pyiceberg.exceptions").NotInstalledError
    schema = table.schema()
    for field in table.spec().fields:
        column = schema.find_column_name(field.source_id)
        what = f"{where}, partition {field.name!r} by {field.transform} of column {column!r}"
        try:
            _make_one(field.transform, schema.find_field(field.source_id))
        except not_installed as error:
            raise ConfigError(
                what,
                expected="the library pyiceberg-core, which computes it",
                found=str(error),
                action="pip install 'pyiceberg[pyiceberg-core]'",
            ) from error
        except Exception as error:
            raise ConfigError(
                what,
                expected="a partition that pyiceberg can make",
                found=f"{type(error).__name__}: {error}",
                action="partition the table by another column",
            ) from error


def partition_columns(table: Any) -> list[Sequence[str]]:
    """The columns whose values are partitions themselves, by their names from the outside in."""
    paths = []
    for field in table.spec().fields:
        if str(field.transform) == "identity":
            paths.append(_path_to(field.source_id, table.schema().fields))
    return paths


def _path_to(column: int, fields: Sequence[Any]) -> Sequence[str]:
    """The names of a column and of the structs that it is in; none when it is in none of these."""
    for field in fields:
        if field.field_id == column:
            return (field.name,)
        if field.field_type.is_struct and (path := _path_to(column, field.field_type.fields)):
            return (field.name, *path)
    return ()


def _make_one(transform: Any, source: Any) -> None:
    pa, schema = import_module("pyarrow"), import_module("pyiceberg.schema").Schema(source)
    values = pa.nulls(1, schema.as_arrow().field(0).type)
    parts = pa.table({"part": transform.pyarrow_transform(source.field_type)(values)})
    parts.group_by("part").aggregate([])
