"""Objects as msgpack, and back: their types included, and never a program.

Invariants: what is decoded equals what was encoded, of the same types; decoding calls nothing that
the bytes choose, but for types that the job names (`classes`).
A value is a msgpack scalar, or an array that begins with a tag. Types are numbered by the shapes
that are stored with the objects. Format: docs/internals/format.md, "Objects".
"""

import copyreg
import functools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from itertools import chain
from typing import Any, Final, Protocol, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from tidelog.errors import TidelogError
from tidelog.state.objects.classes import (
    Builder,
    Kind,
    RecordTypes,
    builder,
    changed,
    check_no_more,
    fields_of,
    module_of,
    unstorable,
    zone_of,
)
from tidelog.state.schema.row import Row, row_maker

# Tags of the format: a number stays, and a new tag gets the next one.
LIST, TUPLE, DICT, SET, FROZEN_SET = 0, 1, 2, 3, 4
BIG_INT, ODD_TEXT, BYTE_ARRAY, COMPLEX, RANGE, SLICE = 5, 6, 7, 8, 9, 10
DATE, DATE_TIME, TIME, TIME_DELTA, OFFSET, ZONE = 11, 12, 13, 14, 15, 16
DECIMAL, FRACTION, UUID_, ORDERED, DEQUE, COUNTER = 17, 18, 19, 20, 21, 22
TYPED, DEFAULT_DICT = 23, 24

NEW, NEW_WITH_NAMES, CALL = 0, 1, 2
"""How a type named by the job makes an instance."""

_WHOLE: Final = ("named-tuple", "struct")  # stored by their fields alone
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_INT64: Final = range(-(1 << 63), 1 << 64)
_FACTORIES: Final = {kind.__name__: kind for kind in (int, float, str, list, dict, set, tuple)}
"""Default factories that a stored defaultdict may have, by name."""


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A type of records, and the names of the values that each has."""

    kind: Kind
    module: str = ""
    name: str = ""
    fields: tuple[str, ...] = ()


def encode_records(records: list[Any], types: RecordTypes) -> tuple[list[Shape], bytes]:
    """The shapes of all records, and the records; raises SerializationError."""
    try:
        encoder = _Encoder(types)
        try:
            return encoder.shapes, _encode(encoder.all(records))
        except (OverflowError, UnicodeEncodeError):
            # An int beyond 64 bits, or text that is no Unicode: rare, so only now looked for.
            encoder = _Encoder(types, scalars=_SCALARS - {int, str})
            return encoder.shapes, _encode(encoder.all(records))
    except TidelogError:
        raise
    except RecursionError as error:
        raise unstorable("a record", "it is nested too deeply, or holds itself") from error
    except Exception as error:  # whatever a type's own pickling raises
        raise unstorable("a record", f"{type(error).__name__}: {error}") from error


def encode_rows(rows: list[Row], types: RecordTypes) -> list[bytes] | None:
    """For each row of one class what `decode_parts` reads; None where not all are so simple."""
    encoder = _Encoder(types)
    try:
        encoded = [_encode(_encode([row])) for row in encoder.all(rows)]
    except Exception:  # whatever it is, the row alone tells
        return None
    shapes = b"\x92" + _encode(encoder.shapes)  # a list of two, the first of them
    return [shapes + data for data in encoded] if len(encoder.shapes) == 1 else None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_list: Final = msgspec.msgpack.Decoder(list[Any]).decode
decode_parts: Final = msgspec.msgpack.Decoder(tuple[list[Shape], bytes]).decode
"""What `encode_records` gives, where both are encoded together."""


class Builders(Protocol):
    """Where a decoder has what builds instances from."""

    def builder_of(self, shape: Any, new: Callable[[Any, RecordTypes], Builder]) -> Builder:
        """What builds instances of a shape; `new` makes it of a class that is there."""


def decode_records(shapes: Sequence[Shape], data: bytes, types: Builders) -> list[Any]:
    """Raises SerializationError for types that are not to be had, anything for damaged bytes."""
    return _Decoder(shapes, types).all(_decode_list(data))


class _Encoder:
    """Turns records into what msgpack has."""

    def __init__(self, types: RecordTypes, scalars: frozenset[type] = _SCALARS) -> None:
        self._types = types
        self._scalars = scalars
        self.shapes: list[Shape] = []
        self._numbers: dict[Any, int] = {}

    def all(self, values: Iterable[Any]) -> list[Any]:
        if type(values) is not list:
            values = list(values)
        kinds = set(map(type, values))
        if kinds <= self._scalars:
            return values
        if len(kinds) == 1:
            (kind,) = kinds
            if issubclass(kind, Row) and kind._fields and self._types.kind_of(kind) == "row":
                return self._rows(kind, values)
        return list(map(self.one, values))

    def _rows(self, kind: type[Row], rows: list[Any]) -> list[Any]:
        """As `all`, of rows of one class: most lists of records are such."""
        number = self._shape("row", kind, kind._fields)
        if self._scalars.issuperset(map(type, chain.from_iterable(rows))):
            return [[TYPED, number, *row] for row in rows]
        return [[TYPED, number, *self.all(list(row))] for row in rows]

    def one(self, value: Any) -> Any:
        """A scalar or a tagged list."""
        kind = type(value)
        if kind in self._scalars:
            return value
        take_apart = _APART.get(kind)
        if take_apart is not None:
            return take_apart(self, value)
        return self._typed(kind, value)

    def _typed(self, kind: type, value: Any) -> list[Any]:
        how = self._types.kind_of(kind)
        fields: tuple[str, ...] = ()
        if how == "row":
            fields, values = value._fields, list(tuple.__iter__(value))
        elif how == "named-tuple":
            fields, values = cast(Any, kind)._fields, list(tuple.__iter__(value))
        elif how == "struct":
            fields, values = cast(Any, kind).__struct_fields__, list(msgspec.structs.astuple(value))
        elif how == "dataclass":
            attributes = fields_of(value)
            fields, values = tuple(attributes), list(attributes.values())
        elif how == "enum":
            values = _members(value)
        else:
            values = _as_pickled(kind, value)
        if how in _WHOLE and (len(fields) != len(values) or getattr(value, "__dict__", None)):
            check_no_more(value, len(fields) == len(values))
        return [TYPED, self._shape(how, kind, fields), *self.all(values)]

    def _shape(self, how: Kind, kind: type, fields: tuple[str, ...]) -> int:
        number = self._numbers.get((kind, fields))
        if number is None:
            if not all(type(name) is str for name in fields):
                raise unstorable(kind.__qualname__, "names of its fields are no text")
            number = self._numbers[kind, fields] = len(self.shapes)
            # A row is of no module: its names say which class it is of.
            module, name = ("", "") if how == "row" else (module_of(kind), kind.__qualname__)
            self.shapes.append(Shape(how, module, name, fields))
        return number


def _members(value: Enum) -> list[str]:
    """The names of the members that a value of an enum is made of."""
    members = cast(Any, type(value))._member_map_
    if members.get(value._name_) is value:
        return [value._name_]
    names = [member._name_ for member in cast(Any, value)] if isinstance(value, Flag) else []
    if _joined(type(value), names) is not value:
        raise unstorable(repr(value), "a flag that is not made of members of its type")
    return names


def _joined(kind: type, names: Sequence[str]) -> Any:
    try:
        members = [cast(Any, kind)._member_map_[name] for name in names]
    except KeyError as gone:
        expected = f"with the member {gone}, as the checkpoint has it"
        raise changed(kind, expected, "none of that name") from None
    if len(members) == 1:
        return members[0]
    if not issubclass(kind, Flag):
        raise ValueError(f"{len(members)} members of {kind}")
    return functools.reduce(Flag.__or__, members) if members else kind(0)


def _as_pickled(kind: type, value: Any) -> list[Any]:
    """How to make an instance, with what, and what to fill it with."""
    if isinstance(value, msgspec.Struct):
        keywords = {name: getattr(value, name) for name in value.__struct_fields__}
        return [CALL, (), keywords, None, None, None]
    reduced = value.__reduce_ex__(5)
    if not isinstance(reduced, tuple) or len(reduced) > 5:
        raise unstorable(kind.__qualname__, "its pickling has a form of its own")
    callee, arguments, state, elements, items = (*reduced, None, None, None)[:5]
    how, keywords = CALL, {}
    if callee is copyreg.__newobj__:  # type: ignore[attr-defined]  # missing in its stubs
        how, callee, arguments = NEW, arguments[0], arguments[1:]
    elif callee is copyreg.__newobj_ex__:  # type: ignore[attr-defined]
        how, (callee, arguments, keywords) = NEW_WITH_NAMES, arguments
    if callee is not kind:
        raise unstorable(kind.__qualname__, f"its pickling calls {callee!r} instead of the type")
    return [
        how,
        tuple(arguments),
        dict(keywords),
        state,
        None if elements is None else list(elements),
        None if items is None else dict(items),
    ]


def _pairs(encoder: _Encoder, value: dict[Any, Any]) -> list[Any]:
    return encoder.all(part for pair in value.items() for part in pair)


_APART: Final[dict[type, Callable[[_Encoder, Any], list[Any]]]] = {
    list: lambda e, v: [LIST, *e.all(v)],
    tuple: lambda e, v: [TUPLE, *e.all(v)],
    dict: lambda e, v: [DICT, *_pairs(e, v)],
    set: lambda e, v: [SET, *e.all(v)],
    frozenset: lambda e, v: [FROZEN_SET, *e.all(v)],
    OrderedDict: lambda e, v: [ORDERED, *_pairs(e, v)],
    Counter: lambda e, v: [COUNTER, *_pairs(e, v)],
    deque: lambda e, v: [DEQUE, v.maxlen, *e.all(v)],
    int: lambda e, v: (
        v if v in _INT64 else [BIG_INT, v.to_bytes(v.bit_length() // 8 + 1, "big", signed=True)]
    ),
    str: lambda e, v: v if _is_unicode(v) else [ODD_TEXT, v.encode("utf-8", "surrogatepass")],
    bytearray: lambda e, v: [BYTE_ARRAY, bytes(v)],
    complex: lambda e, v: [COMPLEX, v.real, v.imag],
    range: lambda e, v: [RANGE, *e.all((v.start, v.stop, v.step))],
    slice: lambda e, v: [SLICE, *e.all((v.start, v.stop, v.step))],
    date: lambda e, v: [DATE, v.year, v.month, v.day],
    datetime: lambda e, v: [
        *(DATE_TIME, v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond),
        *(v.fold, e.one(v.tzinfo)),
    ],
    time: lambda e, v: [TIME, v.hour, v.minute, v.second, v.microsecond, v.fold, e.one(v.tzinfo)],
    timedelta: lambda e, v: [TIME_DELTA, v.days, v.seconds, v.microseconds],
    timezone: lambda e, v: [OFFSET, *e.all(v.__getinitargs__())],
    Decimal: lambda e, v: [DECIMAL, str(v)],
    Fraction: lambda e, v: [FRACTION, *e.all((v.numerator, v.denominator))],
    UUID: lambda e, v: [UUID_, v.bytes],
}


def _zone(encoder: _Encoder, value: ZoneInfo) -> list[Any]:
    if value.key is None:
        raise unstorable("a ZoneInfo", "it was read from a file and has no name")
    return [ZONE, value.key]


_APART[ZoneInfo] = _zone


def _default_dict(encoder: _Encoder, value: defaultdict[Any, Any]) -> list[Any]:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and _FACTORIES.get(name) is not factory:
        raise unstorable(f"a defaultdict of {factory!r}", "its factory is no basic type")
    return [DEFAULT_DICT, name, *_pairs(encoder, value)]


_APART[defaultdict] = _default_dict


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Decoder:
    """Builds records from what msgpack has."""

    def __init__(self, shapes: Sequence[Shape], types: Builders) -> None:
        self._builders = [types.builder_of(shape, _builder) for shape in shapes]

    def all(self, values: list[Any]) -> list[Any]:
        return [self.one(value) if type(value) is list else value for value in values]

    def one(self, value: Any) -> Any:
        """The value of a scalar or a tagged list."""
        if type(value) is not list:
            return value
        tag = value[0]
        if tag == TYPED:
            number = value[1]
            if not 0 <= number < len(self._builders):
                raise ValueError(f"there is no shape {number}")
            return self._builders[number](self.all(value[2:]))
        return _TOGETHER[tag](self.all(value[1:]))


def _builder(shape: Shape, types: RecordTypes) -> Builder:
    if shape.kind == "row":
        return row_maker(shape.fields)
    kind = types.find(shape.module, shape.name)
    if (now := types.kind_of(kind)) != shape.kind:
        raise changed(kind, f"as a {shape.kind}, which the checkpoint has", f"a {now}")
    if shape.kind == "enum":
        return lambda values: _joined(kind, values)
    if shape.kind == "class":
        return lambda values: _from_pickled(kind, *values)
    return builder(kind, shape.fields)


def _from_pickled(
    kind: type,
    how: int,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    state: Any,
    elements: list[Any] | None,
    items: dict[Any, Any] | None,
) -> Any:
    """An instance of a type that the job names, made as its own pickling says."""
    record: Any = (
        kind(*arguments, **keywords) if how == CALL else kind.__new__(kind, *arguments, **keywords)
    )
    if state is not None:
        _set_state(record, state)
    if elements is not None:
        record.extend(elements)
    for key, value in (items or {}).items():
        record[key] = value
    return record


def _set_state(record: Any, state: Any) -> None:
    if hasattr(record, "__setstate__"):
        record.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    if attributes:
        record.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        object.__setattr__(record, name, value)


def _mapping(make: Callable[[], Any], parts: Sequence[Any]) -> Any:
    mapping = make()
    # Not `update`: that of a counter adds.
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        mapping[key] = value
    return mapping


_TOGETHER: Final[dict[int, Callable[[list[Any]], Any]]] = {
    LIST: list,
    TUPLE: tuple,
    DICT: functools.partial(_mapping, dict),
    SET: set,
    FROZEN_SET: frozenset,
    ORDERED: functools.partial(_mapping, OrderedDict),
    COUNTER: functools.partial(_mapping, Counter),
    DEFAULT_DICT: lambda parts: _mapping(
        lambda: defaultdict(parts[0] and _FACTORIES[parts[0]]), parts[1:]
    ),
    DEQUE: lambda parts: deque(parts[1:], parts[0]),
    BIG_INT: lambda parts: int.from_bytes(parts[0], "big", signed=True),
    ODD_TEXT: lambda parts: bytes.decode(parts[0], "utf-8", "surrogatepass"),
    BYTE_ARRAY: lambda parts: bytearray(memoryview(parts[0])),
    COMPLEX: lambda parts: complex(*parts),
    RANGE: lambda parts: range(*parts),
    SLICE: lambda parts: slice(*parts),
    DATE: lambda parts: date(*parts),
    DATE_TIME: lambda parts: datetime(*parts[:7]).replace(fold=parts[7], tzinfo=parts[8]),
    TIME: lambda parts: time(*parts[:4]).replace(fold=parts[4], tzinfo=parts[5]),
    TIME_DELTA: lambda parts: timedelta(*parts),
    OFFSET: lambda parts: timezone(*parts),
    ZONE: lambda parts: zone_of(*parts),
    DECIMAL: lambda parts: Decimal(*parts),
    FRACTION: lambda parts: Fraction(*parts),
    UUID_: lambda parts: UUID(bytes=parts[0]),
}
