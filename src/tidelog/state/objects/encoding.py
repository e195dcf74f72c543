"""Python objects as msgpack and back, with their types.

A value is a msgpack scalar, or an array that begins with a tag. An instance of a class has the
number of a shape, which names the class and its fields; shapes are stored beside the values.
Invariants: what is decoded equals what was encoded, of the same types; decoding runs no code that
the bytes choose, except pickling of classes that the job names (`classes`).
Format: docs/internals/format.md, "Objects".
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

# Tags are stored: a number never changes, and a new tag gets the next one.
LIST, TUPLE, DICT, SET, FROZEN_SET = 0, 1, 2, 3, 4
BIG_INT, SURROGATE_TEXT, BYTE_ARRAY, COMPLEX, RANGE, SLICE = 5, 6, 7, 8, 9, 10
DATE, DATE_TIME, TIME, TIME_DELTA, OFFSET, ZONE = 11, 12, 13, 14, 15, 16
DECIMAL, FRACTION, UUID_, ORDERED, DEQUE, COUNTER = 17, 18, 19, 20, 21, 22
TYPED, DEFAULT_DICT = 23, 24

NEW, NEW_WITH_KEYWORDS, CALL = 0, 1, 2
"""How a pickled instance is made, as stored: by `__new__`, or by a call of the class."""

_HAS_ONLY_FIELDS: Final = ("named-tuple", "struct")
"""Kinds of classes whose instances have no attributes besides their fields."""
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_INT64: Final = range(-(1 << 63), 1 << 64)
_FACTORIES: Final = {cls.__name__: cls for cls in (int, float, str, list, dict, set, tuple)}
"""Default factories that a stored defaultdict may have, by name."""


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A class, how its instances are taken apart, and the names of the values stored of each."""

    kind: Kind
    module: str = ""
    name: str = ""
    fields: tuple[str, ...] = ()


def encode_records(records: list[Any], types: RecordTypes) -> tuple[list[Shape], bytes]:
    """The shapes of the records, and the records; raises SerializationError."""
    try:
        encoder = _Encoder(types)
        try:
            return encoder.shapes, _encode(encoder.values(records))
        except (OverflowError, UnicodeEncodeError):
            # An int beyond 64 bits or a lone surrogate, which are rare: each is checked only now.
            encoder = _Encoder(types, scalars=_SCALARS - {int, str})
            return encoder.shapes, _encode(encoder.values(records))
    except TidelogError:
        raise
    except RecursionError as error:
        raise unstorable("a record", "it is nested too deeply, or holds itself") from error
    except Exception as error:  # whatever a type's own pickling raises
        raise unstorable("a record", f"{type(error).__name__}: {error}") from error


def encode_rows(rows: list[Row], types: RecordTypes) -> list[bytes] | None:
    """Each row as `decode_parts` reads it; None unless all of it is of one shape."""
    encoder = _Encoder(types)
    try:
        encoded = [_encode(_encode([row])) for row in encoder.values(rows)]
    except Exception:  # `encode_records` of the single row raises the same, with its reason
        return None
    prefix = b"\x92" + _encode(encoder.shapes)  # an array of two, and its first element
    return [prefix + data for data in encoded] if len(encoder.shapes) == 1 else None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_list: Final = msgspec.msgpack.Decoder(list[Any]).decode
decode_parts: Final = msgspec.msgpack.Decoder(tuple[list[Shape], bytes]).decode
"""The result of `encode_records`, encoded as one array."""


class Builders(Protocol):
    """The builders of a decoder, by shape."""

    def builder_of(self, shape: Any, new: Callable[[Any, RecordTypes], Builder]) -> Builder:
        """The builder of the instances of a shape, which `new` may make."""


def decode_records(shapes: Sequence[Shape], data: bytes, types: Builders) -> list[Any]:
    """Raises SerializationError for missing or changed classes, anything for damaged bytes."""
    return _Decoder(shapes, types).values(_decode_list(data))


class _Encoder:
    """Turns values into scalars and tagged lists of msgpack; collects the shapes."""

    def __init__(self, types: RecordTypes, scalars: frozenset[type] = _SCALARS) -> None:
        self._types = types
        self._scalars = scalars
        self.shapes: list[Shape] = []
        self._numbers: dict[Any, int] = {}

    def values(self, values: Iterable[Any]) -> list[Any]:
        """Each value as a scalar or a tagged list."""
        if type(values) is not list:
            values = list(values)
        classes = set(map(type, values))
        if classes <= self._scalars:
            return values
        if len(classes) == 1:
            (cls,) = classes
            if issubclass(cls, Row) and cls._fields and self._types.kind_of(cls) == "row":
                return self._rows(cls, values)
        return list(map(self.value, values))

    def _rows(self, cls: type[Row], rows: list[Any]) -> list[Any]:
        """As `values`, for rows of one class, as most lists of records are."""
        number = self._shape_number("row", cls, cls._fields)
        if self._scalars.issuperset(map(type, chain.from_iterable(rows))):
            return [[TYPED, number, *row] for row in rows]
        return [[TYPED, number, *self.values(list(row))] for row in rows]

    def value(self, value: Any) -> Any:
        """A scalar or a tagged list."""
        cls = type(value)
        if cls in self._scalars:
            return value
        encode = _ENCODERS.get(cls)
        if encode is not None:
            return encode(self, value)
        return self._instance(cls, value)

    def _instance(self, cls: type, value: Any) -> list[Any]:
        kind = self._types.kind_of(cls)
        fields: tuple[str, ...] = ()
        if kind == "row":
            fields, values = value._fields, list(tuple.__iter__(value))
        elif kind == "named-tuple":
            fields, values = cast(Any, cls)._fields, list(tuple.__iter__(value))
        elif kind == "struct":
            fields, values = cast(Any, cls).__struct_fields__, list(msgspec.structs.astuple(value))
        elif kind == "dataclass":
            attributes = fields_of(value)
            fields, values = tuple(attributes), list(attributes.values())
        elif kind == "enum":
            values = _member_names(value)
        else:
            values = _pickled(cls, value)
        fits = len(fields) == len(values)
        if kind in _HAS_ONLY_FIELDS and (not fits or getattr(value, "__dict__", None)):
            check_no_more(value, fits)
        return [TYPED, self._shape_number(kind, cls, fields), *self.values(values)]

    def _shape_number(self, kind: Kind, cls: type, fields: tuple[str, ...]) -> int:
        number = self._numbers.get((cls, fields))
        if number is None:
            if not all(type(name) is str for name in fields):
                raise unstorable(cls.__qualname__, "names of its fields are no text")
            number = self._numbers[cls, fields] = len(self.shapes)
            # Rows need no class of the job: the reader makes one for their fields.
            module, name = ("", "") if kind == "row" else (module_of(cls), cls.__qualname__)
            self.shapes.append(Shape(kind, module, name, fields))
        return number


def _member_names(value: Enum) -> list[str]:
    """The name of a member of an enum; of a flag the names of all its members."""
    members = cast(Any, type(value))._member_map_
    if members.get(value._name_) is value:
        return [value._name_]
    names = [member._name_ for member in cast(Any, value)] if isinstance(value, Flag) else []
    if _enum_value(type(value), names) is not value:
        raise unstorable(repr(value), "a flag that is not made of members of its type")
    return names


def _enum_value(cls: type, names: Sequence[str]) -> Any:
    """The member of this name, or the flag with these members."""
    try:
        members = [cast(Any, cls)._member_map_[name] for name in names]
    except KeyError as missing:
        expected = f"with the member {missing}, as the checkpoint has it"
        raise changed(cls, expected, "none of that name") from None
    if len(members) == 1:
        return members[0]
    if not issubclass(cls, Flag):
        raise ValueError(f"{len(members)} members of {cls}")
    return functools.reduce(Flag.__or__, members) if members else cls(0)


def _pickled(cls: type, value: Any) -> list[Any]:
    """The arguments of `_unpickled`, from what the class's own pickling says."""
    if isinstance(value, msgspec.Struct):
        keywords = {name: getattr(value, name) for name in value.__struct_fields__}
        return [CALL, (), keywords, None, None, None]
    reduced = value.__reduce_ex__(5)
    if not isinstance(reduced, tuple) or len(reduced) > 5:
        raise unstorable(cls.__qualname__, "its pickling has a form of its own")
    callee, arguments, state, elements, items = (*reduced, None, None, None)[:5]
    how, keywords = CALL, {}
    if callee is copyreg.__newobj__:  # type: ignore[attr-defined]  # missing in its stubs
        how, callee, arguments = NEW, arguments[0], arguments[1:]
    elif callee is copyreg.__newobj_ex__:  # type: ignore[attr-defined]
        how, (callee, arguments, keywords) = NEW_WITH_KEYWORDS, arguments
    if callee is not cls:
        raise unstorable(cls.__qualname__, f"its pickling calls {callee!r} instead of the type")
    return [
        how,
        tuple(arguments),
        dict(keywords),
        state,
        None if elements is None else list(elements),
        None if items is None else dict(items),
    ]


def _zone(encoder: _Encoder, value: ZoneInfo) -> list[Any]:
    if value.key is None:
        raise unstorable("a ZoneInfo", "it was read from a file and has no name")
    return [ZONE, value.key]


def _default_dict(encoder: _Encoder, value: defaultdict[Any, Any]) -> list[Any]:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and _FACTORIES.get(name) is not factory:
        raise unstorable(f"a defaultdict of {factory!r}", "its factory is no basic type")
    return [DEFAULT_DICT, name, *_keys_and_values(encoder, value)]


def _keys_and_values(encoder: _Encoder, value: dict[Any, Any]) -> list[Any]:
    return encoder.values(chain.from_iterable(value.items()))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_ENCODERS: Final[dict[type, Callable[[_Encoder, Any], Any]]] = {
    list: lambda e, v: [LIST, *e.values(v)],
    tuple: lambda e, v: [TUPLE, *e.values(v)],
    dict: lambda e, v: [DICT, *_keys_and_values(e, v)],
    set: lambda e, v: [SET, *e.values(v)],
    frozenset: lambda e, v: [FROZEN_SET, *e.values(v)],
    OrderedDict: lambda e, v: [ORDERED, *_keys_and_values(e, v)],
    Counter: lambda e, v: [COUNTER, *_keys_and_values(e, v)],
    deque: lambda e, v: [DEQUE, v.maxlen, *e.values(v)],
    int: lambda e, v: (
        v if v in _INT64 else [BIG_INT, v.to_bytes(v.bit_length() // 8 + 1, "big", signed=True)]
    ),
    str: lambda e, v: v if _is_unicode(v) else [SURROGATE_TEXT, v.encode("utf-8", "surrogatepass")],
    bytearray: lambda e, v: [BYTE_ARRAY, bytes(v)],
    complex: lambda e, v: [COMPLEX, v.real, v.imag],
    range: lambda e, v: [RANGE, *e.values((v.start, v.stop, v.step))],
    slice: lambda e, v: [SLICE, *e.values((v.start, v.stop, v.step))],
    date: lambda e, v: [DATE, v.year, v.month, v.day],
    datetime: lambda e, v: [
        *(DATE_TIME, v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond),
        *(v.fold, e.value(v.tzinfo)),
    ],
    time: lambda e, v: [TIME, v.hour, v.minute, v.second, v.microsecond, v.fold, e.value(v.tzinfo)],
    timedelta: lambda e, v: [TIME_DELTA, v.days, v.seconds, v.microseconds],
    timezone: lambda e, v: [OFFSET, *e.values(v.__getinitargs__())],
    Decimal: lambda e, v: [DECIMAL, str(v)],
    Fraction: lambda e, v: [FRACTION, *e.values((v.numerator, v.denominator))],
    UUID: lambda e, v: [UUID_, v.bytes],
    ZoneInfo: _zone,
    defaultdict: _default_dict,
}
"""By type, its value as a tagged list; an integer or a text may stay a scalar."""


class _Decoder:
    """Builds values from scalars and tagged lists of msgpack."""

    def __init__(self, shapes: Sequence[Shape], types: Builders) -> None:
        self._builders = [types.builder_of(shape, _builder) for shape in shapes]

    def values(self, values: list[Any]) -> list[Any]:
        return [self._tagged(value) if type(value) is list else value for value in values]

    def _tagged(self, value: list[Any]) -> Any:
        tag = value[0]
        if tag == TYPED:
            number = value[1]
            if not 0 <= number < len(self._builders):
                raise ValueError(f"there is no shape {number}")
            return self._builders[number](self.values(value[2:]))
        return _DECODERS[tag](self.values(value[1:]))


def _builder(shape: Shape, types: RecordTypes) -> Builder:
    if shape.kind == "row":
        return row_maker(shape.fields)
    cls = types.find(shape.module, shape.name)
    if (kind := types.kind_of(cls)) != shape.kind:
        raise changed(cls, f"as a {shape.kind}, which the checkpoint has", f"a {kind}")
    if shape.kind == "enum":
        return lambda values: _enum_value(cls, values)
    if shape.kind == "class":
        return lambda values: _unpickled(cls, *values)
    return builder(cls, shape.fields)


def _unpickled(
    cls: type,
    how: int,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    state: Any,
    elements: list[Any] | None,
    items: dict[Any, Any] | None,
) -> Any:
    """An instance of a class that the job names, made as `pickle` would."""
    record: Any = (
        cls(*arguments, **keywords) if how == CALL else cls.__new__(cls, *arguments, **keywords)
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


_DECODERS: Final[dict[int, Callable[[list[Any]], Any]]] = {
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
    SURROGATE_TEXT: lambda parts: bytes.decode(parts[0], "utf-8", "surrogatepass"),
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
"""By tag, the value of the decoded elements after it."""
