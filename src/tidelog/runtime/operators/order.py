"""One order of values for everything that compares them: Python's, and NaN is the greatest.

Python's own answers about NaN are all "no", so what `max`, `min` and `sorted` make of it depends on
which value came first. Invariant: of any two values the same one is the greater, whichever is
asked about; NaN equals NaN, also of floats or decimals in tuples, lists, dataclasses and structs.
"""

import math
from collections.abc import Callable
from typing import Any, Final

_DECIMALS: Final = "decimal", "Decimal"


def greatest(first: Any, second: Any) -> Any:
    """The greater of two values; of equal ones the first."""
    return second if exceeds(second, first) else first


def least(first: Any, second: Any) -> Any:
    """The lesser of two values; of equal ones the first."""
    return second if exceeds(first, second) else first


def exceeds(value: Any, other: Any) -> bool:
    """Whether a value is greater than another; raises TypeError for what cannot be compared."""
    try:
        if value > other:
            return True
        if value < other or value == other:
            return False
    except ArithmeticError:
        pass  # a decimal NaN refuses to be compared
    return bool(rank(value) > rank(other))


def rank(value: Any) -> Any:
    """What is compared in place of a value, by Python's own order."""
    if isinstance(value, tuple | list):
        return list(map(rank, value))
    if _is_nan(value):
        return True, 0
    names = _compared_fields(value)
    return (False, [rank(getattr(value, name)) for name in names] if names else value)


def _is_nan(value: Any) -> bool:
    kind = type(value)
    if isinstance(value, float):
        return math.isnan(value)
    return (kind.__module__, kind.__qualname__) == _DECIMALS and bool(value.is_nan())


def _compared_fields(value: Any) -> tuple[str, ...]:
    """The fields by which objects of a dataclass or a struct with an order are compared."""
    parameters = getattr(value, "__dataclass_params__", None)
    if parameters is not None and parameters.order:
        fields = value.__dataclass_fields__.values()
        return tuple(field.name for field in fields if field.compare)
    config = getattr(value, "__struct_config__", None)
    return tuple(value.__struct_fields__) if config is not None and config.order else ()


class Greatest:
    """The `n` records that are greatest by a value, the greatest first; of equal ones the first."""

    __slots__ = ("_by", "_n")

    def __init__(self, n: int, by: Callable[[Any], Any]) -> None:
        self._n, self._by = n, by

    def merged(self, records: list[Any], added: list[Any]) -> list[Any]:
        """The greatest of two such lists; the longer one may be changed to become it."""
        if len(added) != 1:
            both = [*records, *added]
            return sorted(both, key=lambda record: rank(self._by(record)), reverse=True)[: self._n]
        (record,) = added
        value = self._by(record)
        if len(records) >= self._n and not exceeds(value, self._by(records[-1])):
            return records
        # By halves: a list of thousands is not looked at for each record.
        records.insert(self._index(records, value), record)
        del records[self._n :]
        return records

    def _index(self, records: list[Any], value: Any) -> int:
        """Where a record with this value is to be inserted."""
        first, end = 0, len(records)
        while first < end:
            middle = (first + end) // 2
            if exceeds(value, self._by(records[middle])):
                end = middle
            else:
                first = middle + 1
        return first
