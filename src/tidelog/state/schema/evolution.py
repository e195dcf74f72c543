"""May a state be read with another definition than it was stored with? A pure comparison.

Invariant: what is allowed is exactly what every stored value can be read as: fields are stored by
position, so those that were there keep place and name, numbers only grow wider, and new fields come
last and are null in old values.
"""

import re
from collections.abc import Sequence
from typing import Final

from tidelog.checkpoint.manifest import StateInfo
from tidelog.state.schema.ddl import Field, parse_fields, split_parts

_WIDER: Final = {
    "tinyint": {"smallint", "int", "bigint", "float", "double"},
    "smallint": {"int", "bigint", "float", "double"},
    "int": {"bigint", "double"},
    "float": {"double"},
}
_SAME_BYTES: Final = {"tinyint", "smallint", "int", "bigint"}, {"float", "double"}
"""Types that store equal values as equal bytes: a key that is one of these is found again."""
_NAMED: Final = re.compile(r"(`(?:[^`]|``)*`|[^:<`]+):(.*)", re.DOTALL)
"""A field of a struct, in a canonical text."""
_OPENER: Final = re.compile("[<(]")
DECLARED: Final = frozenset({"value", "list", "map"})
"""Kinds of the states that a program declares and names by itself."""


def objection(before: StateInfo, after: StateInfo) -> str | None:
    """Why values stored as one definition cannot be read as the other; None when they can."""
    if before.kind != after.kind:
        return f"the kind was {before.kind} and is {after.kind}"
    if before.ttl_ms is None and after.ttl_ms is not None:
        return "it has a TTL now, and its values were stored without the time when they expire"
    if before.ttl_ms is not None and after.ttl_ms is None:
        return "it has no TTL any more, and its values were stored with the time when they expire"
    return _schema_objection(before, after)


def _schema_objection(before: StateInfo, after: StateInfo) -> str | None:
    if before.schema == after.schema:
        return None
    if before.kind in DECLARED and len(before.schema) == len(after.schema):
        return _parsed_objection(before.schema, after.schema)
    return f"({'; '.join(before.schema)}) became ({'; '.join(after.schema)})"


def _parsed_objection(before: Sequence[str], after: Sequence[str]) -> str | None:
    """What changed incompatibly between schemas: texts of a map's keys, if any, then of values."""
    *old_keys, old = map(parse_fields, before)
    *new_keys, new = map(parse_fields, after)
    for old_key, new_key in zip(old_keys, new_keys, strict=True):
        if len(old_key) != len(new_key):
            return "the map's keys have another number of fields"
        if reason := _field_objection(old_key, new_key, key=True):
            return f"in the map's keys {reason}"
    return _field_objection(old, new, key=False)


def _field_objection(old: Sequence[Field], new: Sequence[Field], *, key: bool) -> str | None:
    if len(new) < len(old):
        new_names = {field.name for field in new}
        names = [field.name for field in old if field.name not in new_names]
        return f"{', '.join(map(repr, names)) or 'a field'} is missing"
    for before, after in zip(old, new, strict=False):
        if before.name != after.name:
            return f"{after.name!r} stands where {before.name!r} was; new fields come last"
        if not _readable(before.type_name, after.type_name, key=key):
            return f"{before.name!r} was {before.type_name} and is {after.type_name}"
    return None


def _readable(old: str, new: str, *, key: bool) -> bool:
    """Whether every value of one type can be read as the other."""
    if old == new:
        return True
    (outer, inner), (new_outer, new_inner) = _outer_and_inner(old), _outer_and_inner(new)
    if outer != new_outer:
        same_bytes = any({outer, new_outer} <= types for types in _SAME_BYTES)
        return new_outer in _WIDER.get(outer, ()) and (same_bytes or not key)
    if outer in _LARGER:
        return _LARGER[outer](inner, new_inner)
    # Names in front of a struct's fields belong to the type; other parts have none.
    old_parts, new_parts = list(map(_name_and_type, inner)), list(map(_name_and_type, new_inner))
    last = len(old_parts) - 1
    return len(old_parts) == len(new_parts) and all(
        before == after and _readable(a, b, key=key or (outer == "map" and index < last))
        for index, ((before, a), (after, b)) in enumerate(zip(old_parts, new_parts, strict=True))
    )


def _name_and_type(part: str) -> tuple[str, str]:
    """`a:int` as a and int; what starts with a type has no name."""
    match = _NAMED.fullmatch(part)
    return ("", part) if match is None else (match[1], match[2])


def _larger_decimal(old: list[str], new: list[str]) -> bool:
    precision, scale = map(int, old or _DECIMAL)
    new_precision, new_scale = map(int, new or _DECIMAL)
    return new_precision >= precision and new_scale == scale


def _longer_string(old: list[str], new: list[str]) -> bool:
    return not new or (bool(old) and int(new[0]) >= int(old[0]))


_DECIMAL: Final = ("10", "0")
"""Precision and scale of a decimal that names none."""
_LARGER: Final = {"decimal": _larger_decimal, "string": _longer_string}


def _outer_and_inner(type_name: str) -> tuple[str, list[str]]:
    """`map<a,b>` as map and [a, b]; `decimal(10,2)` as decimal and [10, 2]."""
    opener = _OPENER.search(type_name)
    if opener is None:
        return type_name, []
    return type_name[: opener.start()], split_parts(type_name[opener.end() : -1], "<(", ")>")
