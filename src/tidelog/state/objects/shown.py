"""Values for people: what an object is made of, where its class need not be there.

Invariant: an instance of a class is a dict of its fields, a member of an enum its name.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from tidelog.state.objects.classes import Builder
from tidelog.state.objects.encoding import Shape, decode_records
from tidelog.state.objects.values import object_parts


class _Fields(dict[str, Any]):
    """The fields of an object, which may be an element of a set."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class _NoClasses:
    """Instead of the classes of a program."""

    def builder_of(self, shape: Shape, _: Any) -> Builder:
        if shape.kind == "enum":
            return "|".join
        if shape.kind == "class":
            raise ValueError(f"an instance of {shape.name} is known by its class alone")
        if not shape.fields:  # a row without names
            return list

        def fields(values: Sequence[Any]) -> _Fields:
            return _Fields(zip(shape.fields, values, strict=True))

        return fields


def _shown(code: int, data: memoryview) -> Any:
    shapes, records = object_parts(code, data)
    (value,) = decode_records(shapes, records, _NoClasses())
    with suppress(TypeError):  # of dicts with keys that are no text
        # Text with lone surrogates is none for people: this raises UnicodeEncodeError.
        msgspec.json.encode(value, enc_hook=repr)
    return value


decode_shown: Final = msgspec.msgpack.Decoder(ext_hook=_shown).decode
"""A value of a state; raises ValueError, TypeError and others for damaged bytes."""
