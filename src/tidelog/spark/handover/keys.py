"""Stored keys as the key columns of a data frame.

Invariant: a key becomes values of exactly its type, or an error. Arrow would cast 5 to "5", which
is another key: the query would begin with state that no row of it finds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidelog.errors import StateSchemaError
from tidelog.state.key_groups import decode_keys
from tidelog.state.schema.types import Type, parse_type, text_of

PYTHON_TYPES: Final[dict[str, type]] = {
    "string": str,
    "boolean": bool,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    "double": float,
    "binary": bytes,
}
"""Spark's types of key columns, and the type of the keys that `key_by` gives embedded."""
_ARROW: Final = {
    **{"string": pa.string(), "boolean": pa.bool_(), "tinyint": pa.int8()},
    **{"smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()},
    **{"double": pa.float64(), "binary": pa.binary()},
}
_EVERY_TYPE: Final = frozenset({"None", "tuple"})
"""Stored types that do not tell which columns they fit: each key tells it."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The key columns of a query, for the keys of a stored operator."""

    operator: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    """As Spark names them, such as `bigint`."""

    def check_types(self, stored_types: Iterable[str]) -> None:
        """Raises StateSchemaError where the types of the stored keys are not those of the columns.

        An operator that knows no types of its keys passes: then each key is compared.
        """
        for text in stored_types:
            kind = parse_type(text)
            if kind in _EVERY_TYPE:
                continue
            parts = list(kind[1:]) if isinstance(kind, tuple) else [kind]
            if len(parts) != len(self.types) or not all(map(self._fits, parts, self.types)):
                raise self._refusal(f"keys of type {text_of(kind)}")

    @staticmethod
    def _fits(part: Type, column: str) -> bool:
        return part in ("None", PYTHON_TYPES[column].__name__)

    def arrays(self, keys: Sequence[bytes]) -> list[pa.Array]:
        """A column for each part of the encoded keys; raises StateSchemaError for a wrong key."""
        width = len(self.types)
        rows: list[tuple[Any, ...]] = []
        for key in decode_keys(keys):
            row = key if isinstance(key, tuple) else (key,)
            if len(row) != width:
                raise self._refusal(f"the key {key!r}")
            rows.append(row)
        columns = zip(*rows, strict=True) if rows else [()] * width
        return list(map(self._array, columns, self.types))

    def _array(self, values: Sequence[Any], column: str) -> pa.Array:
        expected = {PYTHON_TYPES[column], type(None)}
        for value in values:
            if type(value) not in expected:
                raise self._refusal(f"the key {value!r}, of type {type(value).__name__}")
        try:
            return pa.array(values, _ARROW[column])
        except (pa.ArrowInvalid, OverflowError) as error:
            raise self._refusal(f"a key that {column} cannot hold ({error})") from error

    def _refusal(self, keys: str) -> StateSchemaError:
        columns = ", ".join(map("{} {}".format, self.names, self.types))
        return StateSchemaError(
            f"state of operator {self.operator!r}",
            expected=f"keys that the key columns ({columns}) can hold",
            found=keys,
            action="make key columns of that type, as rows of the query find state by equal keys "
            "of one type alone: cast them before, for example to bigint where keys are ints",
            retry_safe=True,
        )
