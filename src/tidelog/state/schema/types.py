"""Types of keys and of stored values: what a checkpoint has, a job declares and its data shows.

Invariant: a state never gets a key or a value of a type that fits neither what its checkpoint has
nor what the job declares. None fits every type, so a missing field changes nothing.

A type is a name (`"str"`, `"Decimal"`) or a name with parts (`("tuple", "str", "int")`); a bare
`"tuple"` or `"list"` is one of any parts. As text they read like annotations: `tuple[str, int]`. A
tuple among keys has a part for each place, a sequence among values one for each type of elements.
"""

import types
import typing
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence, Set
from functools import partial
from itertools import chain, filterfalse, product
from typing import Any, Final

import msgspec

from tidelog.errors import ConfigError, StateSchemaError
from tidelog.state.schema.ddl import split_parts
from tidelog.state.schema.row import Row

Type = str | tuple[Any, ...]

_MANY: Final = 8
"""Types of tuples that are told apart; of more the type of the keys is `tuple`."""
_NUMBERS: Final = frozenset({"bool", "int", "float"})
_NAMES: Final[dict[Any, str]] = {
    **{bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes"},
    **{type(None): "None", None: "None"},
}
_SEQUENCES: Final = (list, tuple, set, frozenset)
_WAY_BACK: Final = "let it be of the stored type again"


def text_of(kind: Type) -> str:
    """The type as an annotation."""
    if isinstance(kind, str):
        return kind
    head, *parts = kind
    return f"{head}[{', '.join(map(text_of, parts)) or '()'}]"


def union_text(kinds: Iterable[Type]) -> str:
    """Several types as one annotation."""
    return " | ".join(sorted(map(text_of, kinds)))


def parse_type(text: str) -> Type:
    """The inverse of `text_of`."""
    head, bracket, inner = text.partition("[")
    if not bracket:
        return text
    parts = split_parts(inner[:-1], "[", "]")
    return (head, *(parse_type(part.strip()) for part in parts if part not in ("", "()")))


def fits(kind: Type, known_kind: Type, *, numbers_alike: bool) -> bool:
    """Whether data of one type goes where data of the other is."""
    if kind == known_kind or "None" in (kind, known_kind):
        return True
    (head, *parts), (known_head, *known_parts) = _head_and_parts(kind), _head_and_parts(known_kind)
    if isinstance(kind, str) and isinstance(known_kind, str):
        return numbers_alike and {kind, known_kind} <= _NUMBERS
    if head != known_head:
        return False
    if isinstance(kind, str) or isinstance(known_kind, str):
        return True
    if known_parts[1:] == ["..."]:
        known_parts = known_parts[:1] * len(parts)
    return len(parts) == len(known_parts) and all(
        fits(part, other, numbers_alike=numbers_alike)
        for part, other in zip(parts, known_parts, strict=True)
    )


def _head_and_parts(kind: Type) -> tuple[Any, ...]:
    return (kind,) if isinstance(kind, str) else kind


class DeclaredType(msgspec.Struct, frozen=True):
    """Types that a job declares, and how what is stored with others becomes one of them."""

    types: frozenset[Type]
    option: str
    """The argument that declares them, with its function: `key_by(..., key_type=...)`."""
    migrate: Callable[[Any], Any] | None = None


def declared(
    annotation: Any, option: str, migrate: Callable[[Any], Any] | None, *, keys: bool
) -> DeclaredType | None:
    """What `annotation` (`str`, `int | str`, `tuple[str, int]`) declares; None for none.

    Raises ConfigError for what is no type of keys or values, and for a `migrate` without types.
    """
    if annotation is None and migrate is None:
        return None
    if annotation is None:
        raise ConfigError(
            f"migrate= of {option}",
            expected="also the type that it migrates to",
            found="none",
            action="declare it: what has another type is migrated",
        )
    try:
        return DeclaredType(frozenset(_alternatives(annotation, keys=keys)), option, migrate)
    except TypeError as cause:
        allowed = "tuple[...]" if keys else "list[...], dict[...], a class"
        raise ConfigError(
            option,
            expected=f"str, int, float, bool, bytes, None, {allowed} or a union of these",
            found=str(cause),
            action="write it like an annotation, for example `str | int`",
        ) from cause


def _alternatives(annotation: Any, *, keys: bool) -> Iterator[Type]:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        for part in parts:
            yield from _alternatives(part, keys=keys)
    elif (name := _NAMES.get(annotation)) is not None:
        yield name
    elif not keys:
        yield from _of_value(annotation, origin or annotation, parts)
    elif (origin or annotation) is not tuple:
        raise TypeError(f"{annotation!r}")
    elif parts[1:] == (...,):
        yield from product(("tuple",), _alternatives(parts[0], keys=True), ("...",))
    elif origin is None:
        yield "tuple"
    else:
        yield from product(("tuple",), *map(partial(_alternatives, keys=True), parts))


def _of_value(annotation: Any, kind: Any, parts: Sequence[Any]) -> Iterator[Type]:
    if isinstance(kind, type) and issubclass(kind, _SEQUENCES):  # also rows and named tuples
        elements = [part for part in parts if part is not ...]
        if not elements:
            yield _head(kind)
        for element in elements:
            yield from product((_head(kind),), _alternatives(element, keys=False))
    elif kind is dict and not parts:
        yield "dict"
    elif kind is dict:
        yield from product(("dict",), *map(partial(_alternatives, keys=False), parts))
    elif typing.is_typeddict(annotation):
        yield "dict"
    elif isinstance(annotation, type) and annotation not in (Any, object):  # no value is of these
        yield _head(annotation)
    else:
        raise TypeError(f"{annotation!r}")


class KnownTypes(msgspec.Struct):
    """The types of the keys of an operator, or of the values of a state."""

    what: str
    """Whose: `keys of operator 'count'`."""
    stored_types: frozenset[Type] = frozenset()
    """Types in the checkpoint; empty when it had no data."""
    declared: DeclaredType | None = None
    numbers_alike: bool = False
    """For values: a sum may become a float."""
    option: str = "key_by(..., key_type=...)"
    _admitted: set[Type] = msgspec.field(default_factory=set)

    def admit(self, kinds: Iterable[Type]) -> None:
        """Data of these types is to be stored; raises StateSchemaError when it must not be."""
        for kind in kinds:
            if kind in self._admitted:
                continue
            if not self.allows(kind):
                raise self._refusal(kind)
            self._admitted.add(kind)

    def adopt(self, names: Iterable[str]) -> None:
        """Take over the types that another process has admitted, as `names` has them."""
        self._admitted.update(map(parse_type, names))

    def check(self, kinds: Iterable[Type]) -> None:
        """Raises StateSchemaError for a type that is not exactly one of those that there may be."""
        for kind in kinds:
            if self._allowed and not self._fit(kind):
                raise self._refusal(kind)

    def admit_fields(self, kinds: Collection[Type]) -> None:
        """Like `admit` for the fields of one dict, row or tuple: it may have new ones besides."""
        if self.declared is None and any(map(self.allows, kinds)):
            self._admitted.update(kinds)
        else:
            self.admit(kinds)

    def allows(self, kind: Type) -> bool:
        """Whether data of this type may be stored."""
        return not self._allowed or self._fit(kind)

    @property
    def migrates(self) -> bool:
        """Something stored is of a type that is to be changed."""
        migrated = self.declared is not None and self.declared.migrate is not None
        return migrated and bool(self.undeclared_types())

    def undeclared_types(self) -> frozenset[Type]:
        """Stored types that the declared ones do not allow."""
        return frozenset(filterfalse(self._fit, self.stored_types))

    def check_declared(self) -> None:
        """Raises StateSchemaError when something stored is neither declared nor migrated."""
        undeclared = self.undeclared_types()
        if undeclared and self.declared is not None and self.declared.migrate is None:
            raise StateSchemaError(
                self.what,
                expected=f"{union_text(self.stored_types)}, as the checkpoint has them",
                found=f"{union_text(self.declared.types)} declared",
                action=f"declare {union_text(undeclared)} too in {self.option}, or add migrate=, a "
                "function that makes one of the declared types of what is stored",
            )

    def names(self) -> tuple[str, ...]:
        """For a checkpoint taken now."""
        types = (self.stored_types - self.undeclared_types()) | self._admitted
        return tuple(sorted(map(text_of, _abridged(types))))

    @property
    def _allowed(self) -> frozenset[Type]:
        return self.stored_types if self.declared is None else self.declared.types

    def _fit(self, kind: Type) -> bool:
        return any(
            fits(kind, allowed, numbers_alike=self.numbers_alike) for allowed in self._allowed
        )

    def _refusal(self, kind: Type) -> StateSchemaError:
        if self.declared is not None:
            return StateSchemaError(
                self.what,
                expected=f"{union_text(self.declared.types)}, as declared",
                found=text_of(kind),
                action=f"{_WAY_BACK}, or declare {text_of(kind)} too in {self.option}",
            )
        both = union_text({*self.stored_types, kind})
        return StateSchemaError(
            self.what,
            expected=f"{union_text(self.stored_types)}, as the checkpoint has them",
            found=text_of(kind),
            action=f"{_WAY_BACK}; or keep both with {self.option.replace('...)', both + ')')};"
            f" or change what is stored with "
            f"{self.option.replace('...)', f'{text_of(kind)}, migrate=function)')}",
        )


def _abridged(types: Set[Type]) -> Set[Type]:
    """Without types that others include."""
    with_parts = Counter(kind[0] for kind in types if isinstance(kind, tuple))
    # An empty collection tells nothing about those with elements.
    rest = set(types) - (with_parts.keys() & {"list", "dict", "set", "frozenset"})
    if with_parts["tuple"] > _MANY:
        rest = {"tuple", *(kind for kind in rest if _head_and_parts(kind)[0] != "tuple")}
    return rest


def signature(keys: Sequence[Any]) -> Hashable:
    """The Python types of a buffer of keys, by part; None where tuples differ in length.

    Sets of types cost a fraction of a look at every key.
    """
    kinds = frozenset(map(type, keys))
    if not kinds or not all(issubclass(kind, tuple) for kind in kinds):
        return kinds
    try:
        return tuple([frozenset(map(type, column)) for column in zip(*keys, strict=True)])
    except ValueError:
        return None


def types_of_keys(keys: Sequence[Any]) -> set[Type]:
    """The types of keys in canonical form; None says nothing where there is another type."""
    kinds = set(map(type, keys))
    if not any(issubclass(kind, tuple) for kind in kinds):
        return set(map(_NAMES.__getitem__, kinds))
    if len(kinds) > 1 or len(set(map(len, keys))) > 1:
        return set(map(type_of_key, keys))
    columns: list[set[Type]] = [{"tuple"}]
    for column in zip(*keys, strict=True):
        part_types = set(map(type_of_key, column))
        columns.append(part_types - {"None"} or part_types)
    return set(product(*columns))


def type_of_key(key: Any) -> Type:
    return ("tuple", *map(type_of_key, key)) if isinstance(key, tuple) else _NAMES[type(key)]


class ValueTypes:
    """Looks at values as they are stored, by the flush: at their Python types, not at each."""

    def __init__(self, known_types: KnownTypes) -> None:
        self.known_types = known_types
        self._plain: set[type] = {type(None)}
        self._parts: set[tuple[type, type]] = set()
        """Types of sequences and dicts, with those of their elements, keys and values."""

    def observe(self, values: Sequence[Any]) -> None:
        """Admit values; those of sequences and dicts by what is in them. Raises as `admit`."""
        kinds = set(map(type, values))
        if kinds <= self._plain:
            return
        for kind in kinds - self._plain:
            of_kind = values
            if len(kinds) > 1:
                of_kind = [value for value in values if value.__class__ is kind]
            if kind is dict or issubclass(kind, _SEQUENCES):
                self._observe_parts(kind, of_kind)
            else:
                self.known_types.admit({_head(kind)})
                self._plain.add(kind)

    def _observe_parts(self, kind: type, values: Sequence[Any]) -> None:
        parts = set(map(type, chain.from_iterable(values)))
        if kind is dict:
            parts.update(map(type, chain.from_iterable(map(dict.values, values))))
        new = set(product((kind,), parts)) - self._parts
        if new or not parts:
            fields = kind is dict or issubclass(kind, tuple)
            admit = self.known_types.admit_fields if fields else self.known_types.admit
            for value in values if parts else values[:1]:
                admit(set(types_of_value(value)))
            self._parts |= new


def types_of_value(value: Any) -> Iterator[Type]:
    """The types that `ValueTypes` sees in a value."""
    head = _head(type(value))
    if isinstance(value, _SEQUENCES):
        elements: set[Type] = {(head, _head(type(element))) for element in value}
        yield from elements or {head}
    elif type(value) is dict:
        fields: set[Type] = {
            ("dict", _head(type(key)), _head(type(item))) for key, item in value.items()
        }
        yield from fields or {"dict"}
    else:
        yield head


def _head(kind: type) -> str:
    """What a type of values is called; all rows are of one type."""
    return _NAMES.get(kind) or ("Row" if issubclass(kind, Row) else kind.__qualname__)
