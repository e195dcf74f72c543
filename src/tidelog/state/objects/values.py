"""Values of states without a schema, as msgpack and back.

Invariants: what is read equals what was put, of the same types, or the put is refused; a value of
None, bool, int, float, str and bytes, and of lists and dicts of these, is what msgpack makes of it,
so it costs no more than that; any other value is one extension with the classes that it is made of
(`encoding`, `classes`). Decoding calls nothing that the bytes choose.
Format: docs/internals/format.md, "Values without a schema".
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from operator import itemgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidelog.changelog.state_rows import StateRows
from tidelog.errors import SerializationError, StateSchemaError, TidelogError
from tidelog.state.backend import KeyedBackend
from tidelog.state.registry import Definition
from tidelog.state.schema.row import Row
from tidelog.state.schema.types import ValueTypes, types_of_value

if TYPE_CHECKING:
    from tidelog.state.objects.classes import RecordTypes
    from tidelog.state.objects.encoding import Shape

OBJECT: Final = 1
"""msgpack's extension type of a value that is no plain one."""

_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_encode: Final = msgspec.msgpack.Encoder().encode


def object_parts(code: int, data: memoryview) -> tuple[list["Shape"], bytes]:
    """The shapes of an extension of msgpack and the object itself, as `encoding` takes them.

    Raises ValidationError for bytes that are none.
    """
    if code != OBJECT:
        raise msgspec.ValidationError(f"msgpack's extension {code} is no value of a state")
    parts: tuple[list[Shape], bytes] = _encoding().decode_parts(data)
    return parts


def _encoding() -> ModuleType:
    """`encoding`, loaded with the first value that is no plain one: few states have any."""
    from tidelog.state.objects import encoding  # noqa: PLC0415

    return encoding


class ObjectEncoding:
    """Encodes values of any kept type; `what` names the state in errors."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(ext_hook=self._object).decode
        """The value; raises StateSchemaError where a class of it is not there any more."""

    def encode(self, value: Any) -> bytes:
        """The bytes of a value; raises StateSchemaError for one of a type that is not kept."""
        try:
            if _is_plain(value):
                return _encode(value)
        except (OverflowError, UnicodeEncodeError, RecursionError):
            # An int beyond 64 bits, text that is no Unicode, a list in itself: rare, so only now
            # looked for.
            pass
        try:
            parts = _encoding().encode_records([value], self._classes)
        except SerializationError as error:
            raise StateSchemaError(
                self._what,
                expected="Python's basic types, dates, decimals, UUIDs, and enums, named tuples, "
                "dataclasses, msgspec structs and rows of a module's top level",
                found=error.found,
                action="keep one of these instead, such as a dataclass or a dict; the job resumes "
                "from its last checkpoint",
            ) from error
        return _encode(msgspec.msgpack.Ext(OBJECT, _encode(parts)))

    def encode_many(self, values: list[Any]) -> list[bytes]:
        """The bytes of each value, none of which is None."""
        if _SCALARS.issuperset(map(type, values)):
            try:
                return list(map(_encode, values))
            except (OverflowError, UnicodeEncodeError):
                pass
        if len(set(map(type, values))) == 1 and isinstance(values[0], Row):
            encoded = _encoding().encode_rows(values, self._classes)
            if encoded is not None:
                return [_encode(msgspec.msgpack.Ext(OBJECT, parts)) for parts in encoded]
        return list(map(self.encode, values))

    def _object(self, code: int, data: memoryview) -> Any:
        shapes, records = object_parts(code, data)
        try:
            (value,) = _encoding().decode_records(shapes, records, self._classes)
        except SerializationError as error:
            raise StateSchemaError(
                f"stored {self._what}",
                expected=error.expected,
                found=error.found,
                action="give the class its module, name, fields and members back, or import its "
                "module where the job is defined, and start again",
            ) from error
        except TidelogError:
            raise
        except Exception as error:  # whatever damaged bytes make of values
            raise msgspec.ValidationError(f"{type(error).__name__}: {error}") from error
        return value

    @cached_property
    def _classes(self) -> "RecordTypes":
        types: RecordTypes = _encoding().RecordTypes()
        return types


class UntypedValues(ObjectEncoding):
    """A state without a schema: its values encoded, and their types checked and remembered.

    `option` is what declares their types. With `elements` each value is a list, and the types are
    those of these elements of it.
    """

    def __init__(
        self,
        backend: KeyedBackend,
        definition: Definition,
        option: str,
        *,
        elements: slice | None = None,
    ) -> None:
        self._backend = backend
        info = backend.registry.register(*definition)
        self.prefix = info.id.to_bytes(2, "big")
        """What its rows have after their key group."""
        known_types = backend.registry.value_types(info, option)
        super().__init__(known_types.what)
        self._types = ValueTypes(known_types)
        self._elements = elements
        self._tried: set[type] = set()
        """Types of which a value has been encoded."""

    def encode_many(self, values: list[Any]) -> list[bytes]:
        """As in `ObjectEncoding`; raises StateSchemaError also for types that were not declared."""
        elements = self._elements
        observed = values
        if elements is not None:
            observed = list(chain.from_iterable(map(itemgetter(elements), values)))
        self._types.observe(observed)
        return super().encode_many(values)

    def rows(self, *, scanned: bool = False, cached: bool = True) -> StateRows:
        return self._backend.rows(
            self.encode, self.decode, scanned=scanned, cached=cached, encode_many=self.encode_many
        )

    def check_combined(self, values: list[Any]) -> None:
        """Raises StateSchemaError for values that fail because what is stored has another type."""
        for value in values:
            self._types.known_types.check(types_of_value(value))

    def combining(self, combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """`combine` for a value before, or None, and a new one; raises as `check_combined` where a
        value of a changed type cannot be combined with one that is stored.
        """

        def combined(before: Any, value: Any) -> Any:
            try:
                return value if before is None else combine(before, value)
            except Exception:
                self.check_combined([value])
                raise

        return combined

    def check_first(self, values: Iterable[Any]) -> None:
        """As `check_new`, for the first values alone: a job fails at its first batch."""
        if not self._tried:
            self.check_new(list(values))

    def check_new(self, values: Sequence[Any]) -> None:
        """Refuse values that may never be written, or not soon; looks at one of each new type.

        Raises StateSchemaError for types that are not kept.
        """
        for new_type in set(map(type, values)) - self._tried:
            self.encode(next(value for value in values if type(value) is new_type))
            self._tried.add(new_type)


def _is_plain(value: Any) -> bool:
    """Whether msgpack has the value as it is."""
    kind = type(value)
    if kind is list:
        return _all_plain(value)
    if kind is dict:
        return _SCALARS.issuperset(map(type, value)) and _all_plain(value.values())
    return kind in _SCALARS


def _all_plain(values: Any) -> bool:
    return _SCALARS.issuperset(map(type, values)) or all(map(_is_plain, values))
