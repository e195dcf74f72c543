"""What columns of tables take: a value goes in exactly, or is refused.

Invariants: a type of column takes a value whole or raises TypeError or ValueError, which say why;
the classes of both decide, the value itself only where a column bounds range, length or digits.
Drivers and libraries are more lenient: they cut off fractions, hours and zones without a word. The
one thing that is rounded is a float in a column of single precision, as every such number is.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import dropwhile
from numbers import Integral, Real
from typing import Any, NamedTuple
from uuid import UUID

from tidelog.credentials import shows_records, value_text
from tidelog.errors import UserFunctionError
from tidelog.options.units import plural
from tidelog.state.schema.row import Row

Exact = Callable[[Any], Any]


class ColumnType(NamedTuple):
    """What a column takes."""

    expected: str
    plain: frozenset[type]
    """Classes whose values are taken as they are."""
    exact: Exact
    """A value of any other class as the column takes it, the same; or it raises."""

    def taken(self, value: Any) -> Any:
        """A value, or None, as the column takes it; raises TypeError and ValueError."""
        return value if value is None or value.__class__ in self.plain else self.exact(value)

    def all_taken(self, values: list[Any]) -> list[Any]:
        """Values of a column, most often without a loop in Python."""
        if self.plain.issuperset(set(map(type, values)) - _NONE):
            return values
        return list(map(self.taken, values))

    def with_plain(self, *classes: type) -> "ColumnType":
        """The same where values of these classes are known to go in as they are."""
        return self._replace(plain=self.plain.union(classes))


_NONE = frozenset({type(None)})


def _type(expected: str, exact: Exact, *plain: type) -> ColumnType:
    return ColumnType(expected, frozenset(plain), exact)


def unfit(value: Any, expected: str) -> TypeError:
    """The error of a value of a class that the column does not take."""
    return TypeError(f"a {type(value).__name__} where {expected} is expected")


def anything() -> ColumnType:
    """A column of which only its database knows what it takes."""
    return _type("what the database takes", lambda value: value)


def boolean() -> ColumnType:
    def exact(value: Any) -> bool:
        if type(value).__name__ not in ("bool", "bool_"):  # those of numpy are no subclasses
            raise unfit(value, "a bool")
        return bool(value)

    return _type("a bool", exact, bool)


def integer(bits: int) -> ColumnType:
    """Whole numbers of so many bits, one of them for the sign."""
    limits = range(-(1 << (bits - 1)), 1 << (bits - 1))

    def exact(value: Any) -> int:
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise unfit(value, "an int")
        if (number := int(value)) not in limits:
            raise ValueError(f"it has more than {bits} bits")
        return number

    return _type("an int", exact)


def double() -> ColumnType:
    return _type("a float", _float, float)


def _float(value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise unfit(value, "a float")
    try:
        number = float(value)
    except OverflowError:
        number = 0.0
    # NaN is not even itself.
    if number != value and number == number:  # noqa: PLR0124
        raise ValueError("no float has this value")
    return number


def single() -> ColumnType:
    """Floats of single precision: the nearest one, and never zero or infinity for another."""

    def exact(value: Any) -> float:
        number = _float(value)
        try:
            (rounded,) = struct.unpack("<f", struct.pack("<f", number))
        except OverflowError:
            raise ValueError("it is out of the range of single precision") from None
        inexact = isinstance(value, Integral) and rounded != number
        if inexact or (number != 0 and rounded == 0):
            raise ValueError("no float of single precision has this value")
        return number

    return _type("a float of single precision", exact)


def decimal(precision: int | None = None, scale: int = 0, *, special: bool = False) -> ColumnType:
    """Decimals; `special`: also NaN and infinities."""

    def exact(value: Any) -> Decimal:
        if isinstance(value, Integral) and not isinstance(value, bool):
            value = Decimal(int(value))
        if not isinstance(value, Decimal):
            raise unfit(value, "a Decimal or an int")
        if not value.is_finite():
            if not special:
                raise ValueError("it is not finite")
        elif precision is not None:
            _check_digits(value, precision, scale)
        return value

    return _type("a Decimal", exact)


def _check_digits(value: Decimal, precision: int, scale: int) -> None:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    significant = list(dropwhile(lambda digit: digit == 0, reversed(digits)))
    exponent += len(digits) - len(significant)
    if significant and -exponent > scale:
        raise ValueError(f"it has {plural(-exponent, 'digit')} after the point, the column {scale}")
    if significant and len(significant) + exponent > precision - scale:
        raise ValueError(f"it has more than {plural(precision - scale, 'digit')} before the point")


def text(longest: int | None = None) -> ColumnType:
    """Texts of at most so many characters."""

    def exact(value: Any) -> str:
        if not isinstance(value, str):
            raise unfit(value, "a str")
        if longest is not None and len(value) > longest:
            raise ValueError(
                f"it has {plural(len(value), 'character')}, the column takes {longest}"
            )
        return str.__str__(value)  # of a subclass, such as a member of an enum

    return _type("a str", exact, *((str,) if longest is None else ()))


def binary(length: int | None = None) -> ColumnType:
    """Bytes, of just this length."""

    def exact(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise unfit(value, "bytes")
        if length is not None and len(bytes(value)) != length:
            raise ValueError(f"it has {len(bytes(value))} bytes, the column takes {length}")
        return bytes(value)

    return _type("bytes", exact, *((bytes,) if length is None else ()))


def day() -> ColumnType:
    def exact(value: Any) -> date:
        if not isinstance(value, date) or isinstance(value, datetime):
            raise unfit(value, "a date")
        return value

    return _type("a date", exact, date)


def moment(*, zoned: bool, step_us: int = 1) -> ColumnType:
    """Times of days in UTC: those without a zone are, those with one become so, and a day begins
    at midnight.
    """

    def exact(value: Any) -> datetime:
        if not isinstance(value, date):
            raise unfit(value, "a datetime")
        if not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        _check_step(value, step_us)
        if value.tzinfo is not None:
            value = _in_utc(value)
        in_utc: datetime = value.replace(tzinfo=UTC if zoned else None)
        return in_utc

    return _type("a datetime", exact)


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC it is out of the range of years") from None


def time_of_day(*, zoned: bool = False, step_us: int = 1) -> ColumnType:
    def exact(value: Any) -> time:
        if not isinstance(value, time):
            raise unfit(value, "a time")
        if value.tzinfo is not None and not zoned:
            raise ValueError("it has a zone, the column has none")
        _check_step(value, step_us)
        return value.replace(tzinfo=value.tzinfo or UTC) if zoned else value

    return _type("a time", exact)


def elapsed(step_us: int = 1) -> ColumnType:
    def exact(value: Any) -> timedelta:
        if not isinstance(value, timedelta):
            raise unfit(value, "a timedelta")
        if value.microseconds % step_us:
            raise ValueError(f"the column takes steps of {step_us} microseconds")
        _check_nanoseconds(value)
        return value

    return _type("a timedelta", exact)


def _check_step(value: Any, step_us: int) -> None:
    if value.microsecond % step_us:
        raise ValueError(f"the column takes steps of {step_us} microseconds")
    _check_nanoseconds(value)


def _check_nanoseconds(value: Any) -> None:
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):  # those of pandas
        raise ValueError("it has nanoseconds, the column microseconds")


def unique_id() -> ColumnType:
    def exact(value: Any) -> UUID:
        if isinstance(value, bytes) and len(value) == 16:
            return UUID(bytes=value)
        if not isinstance(value, UUID):
            raise unfit(value, "a UUID")
        return value

    return _type("a UUID", exact, UUID)


class Member(NamedTuple):
    """A column within another."""

    kind: ColumnType
    nullable: bool = True
    name: str = "an element"

    def taken(self, value: Any) -> Any:
        """Raises TypeError and ValueError."""
        if value is None and not self.nullable:
            raise TypeError(f"{self.name} is required")
        return self.kind.taken(value)


def list_of(element: Member) -> ColumnType:
    def exact(value: Any) -> list[Any]:
        return list(map(element.taken, items(value)))

    return _type(f"a list of which each is {element.kind.expected}", exact)


def items(value: Any) -> Iterator[Any]:
    """What is in a list, tuple or array; raises TypeError for what has no order, or is a text."""
    unordered = (str, bytes, bytearray, memoryview, Mapping, set, frozenset)
    listed = isinstance(value, Sequence) or (
        isinstance(value, Iterable) and isinstance(value, Sized)
    )
    if not listed or isinstance(value, unordered):
        raise unfit(value, "a list")
    return iter(value)


def map_of(key: Member, item: Member) -> ColumnType:
    """Dicts, as pairs."""

    def exact(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, Mapping):
            raise unfit(value, "a dict")
        return [(key.taken(name), item.taken(inner)) for name, inner in value.items()]

    return _type("a dict", exact)


def struct_of(fields: Mapping[str, Member]) -> ColumnType:
    """Rows and dicts, as dicts that have all fields."""

    def exact(value: Any) -> dict[str, Any]:
        if isinstance(value, Row):
            value = value.asDict()
        if not isinstance(value, dict) or not value.keys() <= fields.keys():
            raise TypeError(f"it has not the fields {tuple(fields)}")
        return {name: member.taken(value.get(name)) for name, member in fields.items()}

    return _type("a row", exact)


def refused(table: str, column: str, expected: str, value: Any, why: object) -> UserFunctionError:
    """The error of a record whose value its column would change, or does not take."""
    reason = " ".join(str(why).split())
    return UserFunctionError(
        f"a record for table {table!r}, column {column!r}",
        expected=expected,
        found=value_text(value, 100) + (f": {reason:.200}" if reason and shows_records() else ""),
        action="change the record before the sink, or the type of the column",
    )
