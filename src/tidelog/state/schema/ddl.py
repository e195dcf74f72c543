"""Spark's DDL strings for state schemas, parsed into fields.

Invariant: the type names of a field are canonical (`long` becomes `bigint`), so two schemas are the
same when their texts are equal.
"""

import datetime
import decimal
import re
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from tidelog.errors import StateDefinitionError

INTEGER_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_SCALARS: Final[dict[str, Any]] = {
    "boolean": bool,
    **{
        name: Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]
        for name, bits in INTEGER_BITS.items()
    },
    "float": float,
    "double": float,
    "string": str,
    "binary": bytes,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "decimal": decimal.Decimal,
}
_ALIASES: Final = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "varchar": "string",
    "timestamp_ntz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_MAX_SHOWN: Final = 200
"""Characters of a schema that an error shows."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[A-Za-z_][A-Za-z0-9_]*|\d+|[<>(),:])")


class Field(msgspec.Struct, frozen=True):
    """One column: its name, its canonical type, and the Python type that checks it."""

    name: str
    type_name: str
    python: Any
    scalar: bool


UNTYPED: Final = "msgpack"
"""In place of a DDL text: values of any type, as msgpack."""


def parse_fields(text: str) -> tuple[Field, ...]:
    """The fields of `a int, b string` or `struct<a:int,b:string>`; raises StateSchemaError."""
    try:
        fields = _Parser(text).struct_fields()
    except RecursionError as cause:
        raise bad_schema(text, "types that are not nested so deeply") from cause
    if not fields:
        raise bad_schema(text, "at least one field, like 'count long'")
    return fields


def canonical_text(fields: tuple[Field, ...]) -> str:
    """The text that stands for a schema wherever one is stored or compared."""
    return ", ".join(f"{canonical(field.name)} {field.type_name}" for field in fields)


def canonical(name: str) -> str:
    """A name in quotes, if it needs some."""
    return name if _PLAIN_NAME.fullmatch(name) else _quoted_name(name)


def quoted_column(field: Field) -> str:
    """A column, its name always in quotes."""
    return f"{_quoted_name(field.name)} {field.type_name}"


def _quoted_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def split_parts(text: str, openers: str, closers: str) -> list[str]:
    """What stands between commas, but for those within brackets or quotes."""
    parts, depth, in_quotes = [""], 0, False
    for character in text:
        in_quotes ^= character == "`"
        depth += 0 if in_quotes else (character in openers) - (character in closers)
        if character == "," and depth == 0 and not in_quotes:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def tuple_of(fields: tuple[Field, ...]) -> Any:
    """The Python type of a tuple of these fields, for msgspec."""
    return tuple.__class_getitem__(tuple(map(attrgetter("python"), fields)))


def all_scalar(fields: tuple[Field, ...]) -> bool:
    return all(map(attrgetter("scalar"), fields))


def bad_schema(text: str, expected: str) -> StateDefinitionError:
    """The error for a text that is no schema."""
    return StateDefinitionError(
        f"state schema {_shortened(text)}",
        expected=expected,
        action="use Spark's DDL, for example 'count long, tags array<string>'",
    )


def _shortened(text: str) -> str:
    """Enough of a text to know it by: an error is no place for all of what somebody stored."""
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")


class _Type(NamedTuple):
    """What a field has besides its name."""

    name: str
    python: Any
    scalar: bool


class _Parser:
    """Recursive descent over Spark's DDL and `simpleString` forms."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenize(text)
        self._position = 0

    @staticmethod
    def _tokenize(text: str) -> list[str]:
        tokens, position, end = [], 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise bad_schema(
                    text, f"a field list; could not read {_shortened(text[position:])}"
                )
            tokens.append(match.group(1))
            position = match.end()
        return tokens

    def struct_fields(self) -> tuple[Field, ...]:
        """The whole text: `a int, b string` or `struct<a:int,b:string>`."""
        if self._peek().lower() == "struct" and self._peek(1) == "<":
            self._position += 2
            fields = self._fields(">")
            self._take(">")
        else:
            fields = self._fields("")
        if self._position != len(self._tokens):
            raise bad_schema(self._text, f"no {self._peek()!r} there")
        return fields

    def _fields(self, end: str) -> tuple[Field, ...]:
        fields: list[Field] = []
        while self._peek() != end:
            if fields:
                self._take(",")
            name = self._next()
            if name[0] == "`":
                name = name[1:-1].replace("``", "`")
            if self._peek() == ":":
                self._position += 1
            kind = self._type()
            if [self._peek().upper(), self._peek(1).upper()] == ["NOT", "NULL"]:
                self._position += 2
            fields.append(Field(name, kind.name, kind.python | None, kind.scalar))
        return tuple(fields)

    def _type(self) -> _Type:
        word = self._next().lower()
        word = _ALIASES.get(word, word)
        if word == "array":
            self._take("<")
            element = self._type()
            self._take(">")
            elements = list.__class_getitem__(element.python | None)
            return _Type(f"array<{element.name}>", elements, False)
        if word == "map":
            self._take("<")
            key = self._type()
            if not key.scalar:
                raise bad_schema(self._text, "maps whose keys have no arrays or maps in them")
            self._take(",")
            value = self._type()
            self._take(">")
            mapping = dict.__class_getitem__((key.python, value.python | None))
            return _Type(f"map<{key.name},{value.name}>", mapping, False)
        if word == "struct":
            self._take("<")
            fields = self._fields(">")
            self._take(">")
            inner = ",".join(f"{canonical(field.name)}:{field.type_name}" for field in fields)
            return _Type(f"struct<{inner}>", tuple_of(fields), all_scalar(fields))
        if word not in _SCALARS:
            raise bad_schema(self._text, f"a known type, not {word!r}")
        return _Type(word + self._arguments(), _SCALARS[word], True)

    def _arguments(self) -> str:
        """`(10,2)` of a decimal, `(20)` of a varchar."""
        if self._peek() != "(":
            return ""
        text = ""
        while not text.endswith(")"):
            text += self._next()
        return text

    def _peek(self, ahead: int = 0) -> str:
        index = self._position + ahead
        return self._tokens[index] if index < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise bad_schema(self._text, "a name and its type, as in count long")
        self._position += 1
        return token

    def _take(self, token: str) -> None:
        if self._next() != token:
            raise bad_schema(
                self._text,
                f"{token!r} after {_shortened(' '.join(self._tokens[: self._position - 1]))}",
            )
