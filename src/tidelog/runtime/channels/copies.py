"""A record is the business of one operator: what several get, each gets a copy of.

Invariant: nothing that a function may change is in two copies; what nobody can change is shared.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from itertools import chain
from typing import Any, Final

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
    if unchanging(batch.records):
        return batch
    return replace(batch, records=list(map(copied, batch.records)))


def unchanging(values: Sequence[Any]) -> bool:
    """Whether nobody can change the values: scalars, and rows and tuples of these."""
    kinds = {kind for kind in set(map(type, values)) - _UNCHANGING if not _by_name(kind)}
    if not kinds:
        return True
    if not all(issubclass(kind, tuple) for kind in kinds):
        return False
    inner = chain.from_iterable([value for value in values if isinstance(value, tuple)])
    return unchanging(list(inner))


def _by_name(kind: type) -> bool:
    return (kind.__module__, kind.__qualname__) in _BY_NAME


def copied(value: Any) -> Any:
    """A copy of a value with all that can be changed in it."""
    kind = type(value)
    if kind in _UNCHANGING or _by_name(kind):
        return value
    if kind is list:
        return list(map(copied, value))
    if kind is dict:
        return {key: copied(held) for key, held in value.items()}
    if kind is tuple:
        return tuple(map(copied, value))
    if isinstance(value, Row):
        return Row.of(value._fields, map(copied, value))
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
