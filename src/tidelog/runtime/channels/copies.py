"""A record is the business of one operator: what several get, each gets a copy of.

Invariant: nothing that a function may change is in two copies; what nobody can change is shared.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from enum import Enum
from itertools import chain, filterfalse
from types import FunctionType
from typing import Any, Final

import msgspec

from tidelog.errors import UserFunctionError
from tidelog.runtime.channels.messages import Batch
from tidelog.state.schema.row import Row

_UNCHANGING: Final = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, range),
        *(date, datetime, time, timedelta),
    }
)
_BY_NAME: Final = frozenset(
    {("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"), ("zoneinfo", "ZoneInfo")}
)
"""More of them, by module and name: few jobs have any, and their imports take milliseconds."""


def copy_of(batch: Batch) -> Batch:
    """A buffer with copies of the records; raises UserFunctionError for one that has none."""
    records = copies_of(batch.records)
    return batch if records is batch.records else replace(batch, records=records)


def copies_of(values: list[Any]) -> list[Any]:
    """The values, copied if anybody can change one; raises UserFunctionError as `copy_of`."""
    return values if unchanging(values) else list(map(_copied, values))


def unchanging(values: Iterable[Any]) -> bool:
    """Whether values are immutable: scalars, members of enums, and tuples, rows, frozen sets,
    dataclasses and structs of these.
    """
    kinds = set(filterfalse(_is_fixed, set(map(type, values)) - _UNCHANGING))
    if not kinds:
        return True
    if not all(map(_is_frozen, kinds)):
        return False
    parts: list[Iterable[Any]] = [value for value in values if type(value) in kinds]
    if not all(issubclass(kind, tuple | frozenset) for kind in kinds):
        parts = list(map(_parts, parts))
    return unchanging(list(chain.from_iterable(parts)))


def _is_fixed(kind: type) -> bool:
    by_name = (kind.__module__, kind.__qualname__) in _BY_NAME
    return by_name or issubclass(kind, Enum | type | FunctionType)


def _is_frozen(kind: type) -> bool:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_config__.frozen
    frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    return bool(frozen) or issubclass(kind, tuple | frozenset)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple | frozenset):
        return value
    names = getattr(value, "__struct_fields__", None) or value.__dataclass_fields__
    return [getattr(value, name, None) for name in names]


def _copied(value: Any) -> Any:
    """A copy of a value with all that can be changed in it."""
    kind = type(value)
    if kind in _UNCHANGING or _is_fixed(kind):
        return value
    if kind is list:
        return list(map(_copied, value))
    if kind is dict:
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, Row):
        return kind.of(value._fields, map(_copied, value))
    if isinstance(value, tuple) and not hasattr(value, "__dict__"):
        return tuple.__new__(kind, map(_copied, value))
    try:
        return deepcopy(value)
    except Exception as error:  # whatever the copying of a class raises
        raise UserFunctionError(
            f"a record of type {kind.__qualname__} that several operators get",
            expected="one that can be copied, so that none sees what another changes",
            found=f"{type(error).__name__}: {error}",
            action="give it a __deepcopy__, or make a record of plain values before the stream "
            "branches",
        ) from error
