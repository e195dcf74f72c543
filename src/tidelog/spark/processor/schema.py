"""State schemas as Spark gets them, and what Spark hands back.

Values are kept as Spark's own types, a column per field, not as bytes of tidelog: so Spark's state
data source shows them, its schema check guards them at every restart, and the checkpoint is the
one Spark would write if it ran the class itself.

Invariant: a type is let through only if Spark returns its values as they were written; the others
are refused by name while the query is built.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from tidelog.errors import ConfigError
from tidelog.state.schema.schema import Schema, TupleCodec, parse_schema

KEPT: Final = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "double", "string", "binary", "date"}
)
"""Scalar types whose values Spark returns as they were written."""

_NESTED: Final = frozenset({"array", "struct"})
_CHANGED: Final = {
    "float": ("keeps 32 bits of a number that has 64 embedded", "double"),
    "decimal": ("rewrites the number to its own scale", "string, or bigint of the smallest unit"),
    "timestamp": ("drops its time zone", "bigint with milliseconds"),
    "map": ("forgets the order of its entries", "map state, or array<struct<key:..,value:..>>"),
}
"""Types that Spark takes and changes: how, and what to use instead."""

_TYPE_WORD: Final = re.compile(r"(?:^|[<,:])([a-z]+)(?=$|[<>,(])")


@dataclass(frozen=True, slots=True)
class SparkSchema:
    """One schema of a state, on both sides."""

    codec: TupleCodec
    """tidelog's own check: what does not fit embedded does not fit on Spark."""
    ddl: str
    """For Spark; every column may be null, as embedded."""

    def check(self, value: Any) -> tuple[Any, ...]:
        """The value as a tuple of the schema; raises StateSchemaError."""
        return self.codec.check(value)


def spark_schema(state: str, schema: Schema) -> SparkSchema:
    """Raises ConfigError for a type that Spark would change, StateSchemaError for no schema."""
    codec = parse_schema(schema)
    for field in codec.fields:
        for word in _TYPE_WORD.findall(field.type_name):
            if word in KEPT or word in _NESTED:
                continue
            change, instead = _CHANGED[word]
            raise ConfigError(
                f"field {field.name!r} of state {state!r}",
                expected="a type that Spark returns as it was written",
                found=f"{field.type_name}: Spark {change}",
                action=f"use {instead}",
            )
        if "(" in field.type_name:
            raise ConfigError(
                f"field {field.name!r} of state {state!r}",
                expected="a type without a length",
                found=field.type_name,
                action="leave the length out",
            )
    return SparkSchema(codec, ", ".join(_column(f.name, f.type_name) for f in codec.fields))


def plain(value: Any) -> Any:
    """A value read from Spark's state as it is embedded: structs are tuples, binary is bytes."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, list):
        return list(map(plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


def _column(name: str, type_name: str) -> str:
    return f"`{name.replace('`', '``')}` {type_name}"
