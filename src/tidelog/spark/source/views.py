"""The views: their columns, and on which of them reading can be narrowed.

Invariants: a column has the same name and type in both layouts, and may be null in either; every
column is nullable; what a narrowed read leaves out is exactly what the filter would.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.errors import ConfigError


class ViewColumn(NamedTuple):
    """A column; `type` in Spark's DDL."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class SourceView:
    """One table that the source offers."""

    name: str
    columns: tuple[ViewColumn, ...]
    narrowed_by: frozenset[str]
    """Columns on which planning and reading skip what is not wanted."""
    decoded: tuple[ViewColumn, ...] = ()
    """Columns made by decoding row by row, so only on demand."""


def _columns(ddl: str) -> tuple[ViewColumn, ...]:
    return tuple(ViewColumn(*field.split(" ")) for field in ddl.split(", "))


_DECODED: Final = _columns(
    "key_json string, entry_json string, value_json string, expires_json string"
)
_ROW: Final = (
    "key_group int, state_id int, state string, state_kind string, key binary, value binary"
)

VIEWS: Final[Mapping[str, SourceView]] = {
    view.name: view
    for view in (
        SourceView(
            "checkpoints",
            _columns(
                "checkpoint bigint, kind string, attempt bigint, generation bigint, "
                "created timestamp, job string, final boolean, operators int, subtasks int, "
                "manifest_bytes bigint, log_bytes bigint, materialized_bytes bigint, "
                "inline_bytes bigint, error string"
            ),
            frozenset({"checkpoint"}),
        ),
        SourceView(
            "objects",
            _columns(
                "name string, kind string, bytes bigint, generation bigint, "
                "referenced_by array<bigint>, orphan boolean"
            ),
            frozenset(),
        ),
        SourceView(
            "blocks",
            _columns(
                "object string, offset bigint, operator string, subtask int, kind string, "
                "first_seqno bigint, end_seqno bigint, changes int, key_group_min int, "
                "key_group_max int, codec string, raw_bytes bigint, stored_bytes bigint, "
                "generation bigint, referenced_by array<bigint>, time timestamp"
            ),
            frozenset({"operator", "subtask"}),
        ),
        SourceView(
            "changes",
            _columns(
                "checkpoint bigint, operator string, subtask int, seqno bigint, op string, "
                f"{_ROW}, object string"
            ),
            frozenset({"checkpoint", "operator", "subtask", "seqno", "key_group"}),
            _DECODED,
        ),
        SourceView(
            "state",
            _columns(f"checkpoint bigint, operator string, subtask int, {_ROW}"),
            frozenset({"checkpoint", "operator", "subtask", "key_group"}),
            _DECODED,
        ),
    )
}


def chosen(
    view: SourceView, names: Sequence[str] | None, *, decode: bool
) -> tuple[ViewColumn, ...]:
    """The columns of these names in their order, or all of the view, the decoded ones if asked.

    Raises ConfigError for a name that is none, or that comes twice.
    """
    if names is None:
        return view.columns + (view.decoded if decode else ())
    if len(set(names)) < len(names):
        raise _no_column(view, f"{', '.join(names)}, one of them twice")
    return tuple(_named(view, name) for name in names)


def checked(view: SourceView, fields: Iterable[tuple[str, str]]) -> tuple[ViewColumn, ...]:
    """The columns of a schema, given by name and type; raises ConfigError if one does not fit."""
    columns = []
    for name, type_name in fields:
        column = _named(view, name)
        if column.type != type_name:
            raise ConfigError(
                f"column {name} in the schema for view {view.name}",
                expected=f"type {column.type}",
                found=type_name,
                action="correct the type, or choose columns with option columns instead",
            )
        columns.append(column)
    return tuple(columns)


def ddl(columns: Iterable[ViewColumn]) -> str:
    """The columns as a schema in Spark's DDL."""
    return ", ".join(f"{name} {type_name}" for name, type_name in columns)


def _named(view: SourceView, name: str) -> ViewColumn:
    column = next((c for c in (*view.columns, *view.decoded) if c.name == name), None)
    if column is None:
        raise _no_column(view, name)
    return column


def _no_column(view: SourceView, found: str) -> ConfigError:
    return ConfigError(
        f"columns of view {view.name}",
        expected=f"names among {', '.join(c.name for c in (*view.columns, *view.decoded))}",
        found=found,
        action="correct option columns or the schema",
    )
