"""Which classes stored objects may be of, and how their instances are taken apart and built.

Invariants, for bytes that anybody may have written into a store:
- a type is found by module and name among those that the job names, and in modules that are
  imported already; nothing is imported, and no attribute hook is asked;
- of types that the job does not name only data is built: rows, named tuples, dataclasses, structs
  and members of enums. No constructor, setter or method of theirs is called, and a type with a
  destructor, with pickling of its own, or of the standard library is none of them;
- a type that the job names may be built as its own pickling says, but by that type alone.
"""

import dataclasses
import enum
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import MemberDescriptorType, ModuleType
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from tidelog.errors import RestoreError, SerializationError
from tidelog.state.schema.row import Row

Kind = Literal["row", "named-tuple", "dataclass", "struct", "enum", "class"]
"""How instances are taken apart; `class`: as their own pickling says."""

_PROGRAM: Final = "__main__"
"""The module that Python runs as the program."""

_PICKLING = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")

Builder = Callable[[Sequence[Any]], Any]
"""Makes an instance from the values of its fields."""


class RecordTypes:
    """Types that records of a job may be made of; `types` are those that the job names."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._named_types = {(module_of(kind), kind.__qualname__): kind for kind in types}
        self._kinds: dict[type, Kind] = {}
        self._builders: dict[Any, Builder] = {}

    def names(self, module: str, name: str) -> type | None:
        return self._named_types.get((module, name))

    def find(self, module: str, name: str) -> type:
        """A type that is there already; raises SerializationError when there is none."""
        kind = self.names(module, name) or _imported(module, name)
        if kind is None:
            kind_now = _class_named(module, name)
            now = f" (it is {module_of(kind_now)}.{kind_now.__qualname__} now)" if kind_now else ""
            raise SerializationError(
                "records in flight of the checkpoint",
                expected="a class of a module that the job imports before it starts",
                found=f"{module}.{name}{now}, which is not there",
                action="import its module where the job is defined, or name it in the job's "
                "record_types and start again; or drop the records with --drop-in-flight if losing "
                "them is acceptable",
            )
        return kind

    def check(self, name: str) -> None:
        """Raises SerializationError unless records of this type, `module:name`, can be read."""
        module, _, qualname = name.partition(":")
        self.kind_of(self.find(module, qualname))

    def builder_of(self, shape: Any, new: Callable[[Any, "RecordTypes"], Builder]) -> Builder:
        """What builds instances of a shape, which `new` makes when it is needed first."""
        build = self._builders.get(shape)
        if build is None:
            build = new(shape, self)
            if shape.kind != "row":  # of which data may have new ones without end
                self._builders[shape] = build
        return build

    def kind_of(self, kind: type) -> Kind:
        """How instances are taken apart; raises SerializationError if none may be in flight."""
        how = self._kinds.get(kind)
        if how is None:
            how = self._kinds[kind] = self._checked_kind(kind)
        return how

    def _checked_kind(self, kind: type) -> Kind:
        if issubclass(kind, Row) and kind.__module__ == Row.__module__:
            return "row"
        name = f"{kind.__module__}.{kind.__qualname__}"
        is_named = self.names(module_of(kind), kind.__qualname__) is kind
        data = _data_kind(kind)
        if is_named:
            by_pickling = data is None or _hooks(kind)
            return "class" if by_pickling or data is None else data
        if data is None:
            raise unstorable(name, "its type is no named tuple, dataclass, msgspec struct or enum")
        if hooks := _hooks(kind):
            raise unstorable(name, f"its type has {' and '.join(hooks)} of its own")
        if kind.__module__.partition(".")[0] in sys.stdlib_module_names:
            raise unstorable(name, "its type is one of the standard library")
        if _imported(kind.__module__, kind.__qualname__) is not kind:
            raise unstorable(name, "its type is not found by this name in its module")
        return data


def module_of(kind: type) -> str:
    """The module that a class is stored as one of: `job` also where `job.py` is the program."""
    return _name_of_program() if kind.__module__ == _program() else kind.__module__


def _program() -> str:
    """The module of the program's classes; `__mp_main__` in a process of multiprocessing."""
    return sys.modules[_PROGRAM].__name__


def _name_of_program() -> str:
    """What the program that runs would be called if it was imported."""
    program = vars(sys.modules[_PROGRAM])
    spec, file = program.get("__spec__"), program.get("__file__")
    name: str = Path(file).stem if file else _PROGRAM
    if spec:
        name = spec.name
    return _PROGRAM if name in sys.modules else name


def _imported(module: str, name: str) -> type | None:
    """A class that an imported module defines."""
    kind = _class_named(module, name)
    if kind is None or (kind.__module__, kind.__qualname__) != (_module_now(module), name):
        return None
    return kind


def _class_named(module: str, name: str) -> type | None:
    """What class an imported module has by a name, by what is there and no hook of it."""
    member: Any = sys.modules.get(_module_now(module))
    for part in name.split("."):
        if not isinstance(member, ModuleType | type):
            return None
        member = vars(member).get(part)
    return member if isinstance(member, type) else None


def _module_now(module: str) -> str:
    is_program = module not in sys.modules and module == _name_of_program()
    return _program() if is_program or module == _PROGRAM else module


def zone_of(key: str) -> ZoneInfo:
    """A stored time zone; raises RestoreError for one that this machine does not know."""
    try:
        return ZoneInfo(key)
    except ZoneInfoNotFoundError as error:
        raise RestoreError(
            f"time zone {key!r} of a stored time",
            expected="it among the time zones of this machine",
            found="none of that name",
            action="install them (`pip install tzdata`, or the system's package) and start again",
        ) from error


def _data_kind(kind: type) -> Kind | None:
    if issubclass(kind, enum.Enum):
        return "enum"
    if issubclass(kind, msgspec.Struct):
        return "struct"
    if issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        return "named-tuple"
    # What derives from a list or an exception has contents besides its fields.
    only_attributes = all(
        base.__flags__ & _HEAP_TYPE or base is object or base.__module__ == "typing"
        for base in kind.__mro__
    )
    return "dataclass" if only_attributes and dataclasses.is_dataclass(kind) else None


_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class made by a class statement."""


def _hooks(kind: type) -> list[str]:
    """Methods of a type that would run, or could, when an instance is made or destroyed."""
    hooks = ["__del__"]
    if issubclass(kind, msgspec.Struct):
        # A struct is only ever made by its constructor, which calls this.
        hooks.append("__post_init__")
    elif issubclass(kind, enum.Enum):
        hooks.append("_missing_")
    else:
        hooks.extend(_PICKLING)
    return list(filter(partial(_has_own, kind), hooks))


def _has_own(kind: type, hook: str) -> bool:
    for base in kind.__mro__:
        if hook in vars(base):
            # Frozen dataclasses with slots are given theirs by the decorator.
            by_decorator = getattr(vars(base)[hook], "__module__", None) == dataclasses.__name__
            return not by_decorator and base is not object and base.__module__ != enum.__name__
    return False


def fields_of(record: Any) -> dict[str, Any]:
    """The attributes of an instance of a dataclass, also those that are no fields."""
    names = filter(partial(hasattr, record), _slots(type(record)))
    values = {name: getattr(record, name) for name in names}
    values.update(getattr(record, "__dict__", {}))
    # What a subscripted generic class leaves in its instances.
    values.pop("__orig_class__", None)
    return values


def check_no_more(record: Any, fits: bool) -> None:
    """Raises SerializationError for a named tuple or a struct that has more than its fields:
    attributes of its own, or another number of values, which `fits` says.

    What properties of its class have cached does not count: it is made again.
    """
    attributes = getattr(record, "__dict__", ())
    if not fits or not all(map(partial(hasattr, type(record)), attributes)):
        what = "struct" if isinstance(record, msgspec.Struct) else "named tuple"
        raise unstorable(type(record).__qualname__, f"a {what} that has more than its fields")


def builder(kind: type, names: tuple[str, ...]) -> Builder:
    """Makes instances of a data type from values of the named fields, none of its code running.

    Raises SerializationError when the type has other fields now.
    """
    if issubclass(kind, msgspec.Struct):
        return _struct_builder(kind, names)
    if issubclass(kind, tuple):
        return _tuple_builder(kind, names)
    return _attribute_builder(kind, names)


def _struct_builder(kind: type[msgspec.Struct], names: tuple[str, ...]) -> Builder:
    fields = kind.__struct_fields__
    by_default = zip(reversed(fields), reversed(kind.__struct_defaults__), strict=False)
    optional = {name for name, default in by_default if _is_data(default)}
    if not set(fields) - optional <= set(names) <= set(fields):
        raise _other_fields(kind, names, fields)
    return lambda values: kind(**dict(zip(names, values, strict=True)))


def _is_data(default: Any) -> bool:
    """Taking a struct's default calls nothing but perhaps a basic type."""
    if default is msgspec.NODEFAULT:
        return False
    factory = getattr(default, "factory", None)
    return factory is None or factory in _BASIC


_BASIC = (list, dict, set, tuple, frozenset, bytearray, deque, Counter, OrderedDict)
"""Default factories that are called."""


def _tuple_builder(kind: type, names: tuple[str, ...]) -> Builder:
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    defaults: dict[str, Any] = getattr(kind, "_field_defaults", {})
    if not set(fields) - defaults.keys() <= set(names) <= set(fields):
        raise _other_fields(kind, names, fields)

    def build(values: Sequence[Any]) -> Any:
        by_name = {**defaults, **dict(zip(names, values, strict=True))}
        return tuple.__new__(kind, [by_name[name] for name in fields])

    return build


def _attribute_builder(kind: type, names: tuple[str, ...]) -> Builder:
    slots = _slots(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    members = set[str]().union(*map(vars, kind.__mro__))
    added = [field for name, field in fields.items() if name not in names and _is_set(field, slots)]
    other = set(names) - fields.keys() - slots.keys()
    # Instances may have attributes that are no fields; one that became another field is not lost.
    renamed = added and not other <= members
    if (other and "__dict__" not in members) or renamed or not all(map(_has_default, added)):
        raise _other_fields(kind, names, fields)

    def build(values: Sequence[Any]) -> Any:
        record: Any = object.__new__(kind)
        defaults = ((field.name, _default(field)) for field in added)
        for name, value in (*defaults, *zip(names, values, strict=True)):
            slot = slots.get(name)
            if slot is not None:
                slot.__set__(record, value)
            else:
                # The type may have an attribute lookup of its own.
                object.__getattribute__(record, "__dict__")[name] = value
        return record

    return build


def _is_set(field: "dataclasses.Field[Any]", slots: Container[str]) -> bool:
    """Whether every instance has the field, and not by the class alone."""
    by_factory = field.default_factory is not dataclasses.MISSING
    by_slot = field.name in slots and field.default is not dataclasses.MISSING
    return (field.init or by_factory or by_slot) and not isinstance(field.default, property)


def _has_default(field: "dataclasses.Field[Any]") -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory in _BASIC


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    assert field.default_factory is not dataclasses.MISSING
    return field.default_factory()


def _slots(kind: type) -> dict[str, MemberDescriptorType]:
    slots: dict[str, MemberDescriptorType] = {}
    for base in reversed(kind.__mro__):
        members = vars(base).items()
        slots |= {name: slot for name, slot in members if isinstance(slot, MemberDescriptorType)}
    return slots


def unstorable(what: str, why: str) -> SerializationError:
    """The error for a record that cannot be stored."""
    return SerializationError(
        "records in flight",
        expected="values of Python's basic types, dates, decimals, UUIDs, rows, named tuples, "
        "dataclasses, msgspec structs and enums of a module's top level, and types named in "
        "Job(..., record_types=...)",
        found=f"{what}: {why}",
        action="make it one of these, or name its type in the job's record_types; until then "
        "its checkpoints stay aligned",
    )


def _other_fields(
    kind: type, stored_fields: Iterable[str], now: Iterable[str]
) -> SerializationError:
    fields = f"with the fields {', '.join(stored_fields)}, as the checkpoint has them"
    others = "and others only with defaults: a value or an empty collection"
    return changed(kind, f"{fields}, {others}", ", ".join(now))


def changed(kind: type, as_stored: str, now: str) -> SerializationError:
    """The error for a class that is not what it was when an instance of it was stored."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    return SerializationError(
        f"records in flight of type {name}",
        expected=f"{name} {as_stored}",
        found=now,
        action="give the type back what it had, stop the old job with a savepoint, or drop the "
        "records with --drop-in-flight if losing them is acceptable",
    )
