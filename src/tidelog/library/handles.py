"""The states of one key, as a program sees them.

Invariants: every operation has the baton from its first look at the state to its last; a change
opens the calling thread's step before it is made.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tidelog.errors import ConfigError
from tidelog.library.baton import Baton
from tidelog.library.states import AggregateState, NamedState, Shown
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.list import ListState
from tidelog.state.handles.map import MapState
from tidelog.state.handles.value import ValueState

K = TypeVar("K")
V = TypeVar("V")

_LOOK_EVERY: Final = 1024
"""Changes after which the event loop is told to see whether a flush is due."""


@dataclass(slots=True)
class Access:
    """How operations get at state: in turn, and not at all once the database has ended."""

    baton: Baton
    backend: KeyedBackend
    look: Callable[[], None]
    """Called, with the baton, when much was written."""
    ending: Callable[[], Exception]
    """What operations raise when the state is closed; may wait for the end, without the baton."""
    written: int = 0
    """Changes since `look` was called."""

    def look_at_next(self) -> None:
        """The next change calls `look`."""
        self.written = _LOOK_EVERY - 1

    def enter(self) -> None:
        """Take the baton; raises what has ended the database."""
        baton = self.baton
        baton.take()
        if baton.busy:
            self.after_you()

    def after_you(self) -> None:
        """Who has just taken the baton lets others go first; raises as `enter`."""
        baton = self.baton
        try:
            baton.after_you()
        except BaseException:  # such as Ctrl-C
            baton.give()
            raise
        if baton.over:
            baton.give()
            raise self.ending()

    def changing(self) -> None:
        """Count a change that is about to be made; it opens the thread's step."""
        self.baton.changing()
        written = self.written + 1
        if written < _LOOK_EVERY:
            self.written = written
        else:
            self.written = 0
            self.look()


@dataclass(slots=True)
class ReadingAccess(Access):
    """For states that nobody changes."""

    what: str = "a view"

    def changing(self) -> None:
        """Raises ConfigError."""
        raise ConfigError(
            self.what,
            expected="reads: it shows what a checkpoint holds",
            found="a change",
            action="open the store without at= to change its states; fork it to change a copy",
        )


class _OfKey:
    __slots__ = ("_access", "_key", "_prefix", "_state", "_value")

    _state: Any

    def __init__(self, access: Access, prefix: bytes, key: bytes, named: NamedState) -> None:
        self._access = access
        self._prefix = prefix
        self._key = key
        self._state, self._value = named.state, named.value

    @contextmanager
    def _reading(self) -> Iterator[None]:
        access = self._access
        access.enter()
        try:
            access.backend.key_prefix, access.backend.key = self._prefix, self._key
            yield
        finally:
            access.baton.give()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._reading():
            self._access.changing()
            yield


class ValueOfKey(_OfKey, Generic[V]):
    """The value of a key."""

    __slots__ = (
        "_baton",
        "_changes",
        "_give",
        "_hold",
        "_put",
        "_read",
        "_row",
        "_stored",
        "_take",
    )

    def __init__(self, access: Access, prefix: bytes, key: bytes, named: NamedState) -> None:
        super().__init__(access, prefix, key, named)
        # Programs get and set values more often than anything else: nothing is looked up then.
        keyed, baton = named.state.keyed, access.baton
        self._baton, self._take, self._give = baton, baton.take, baton.give
        self._stored, self._put, self._changes = keyed.rows.get, keyed.rows.put, access.changing
        self._hold, self._read = keyed.codec.hold, keyed.codec.read
        self._row = keyed.row_of(prefix, key)

    def get(self) -> V | None:
        """The value; None when there is none."""
        self._take()
        if self._baton.busy:
            self._access.after_you()
        try:
            held = self._stored(self._row)
            found = None if held is None else self._read(held)
        finally:
            self._give()
        return None if found is None else self._value(found)

    def set(self, value: V) -> None:
        """Set the value; raises StateSchemaError when it is not of the declared type."""
        held = self._hold((value,))
        self._take()
        if self._baton.busy:
            self._access.after_you()
        try:
            self._changes()
            self._put(self._row, held)
        finally:
            self._give()

    def delete(self) -> None:
        """Remove the value, if there is one."""
        with self._changing():
            self._state.clear()


class ListOfKey(_OfKey, Generic[V]):
    """The list of a key."""

    _state: ListState

    def get(self) -> list[V]:
        """The elements of the key's list, in the order in which they were appended."""
        with self._reading():
            return list(map(self._value, self._state.get()))

    def append(self, element: V) -> None:
        """Add an element at the end; raises StateSchemaError when it is not of the type."""
        with self._changing():
            self._state.appendValue((element,))

    def set(self, elements: list[V]) -> None:
        """Replace all elements."""
        with self._changing():
            self._state.put([(element,) for element in elements])

    def delete(self) -> None:
        """Remove all elements."""
        with self._changing():
            self._state.clear()


class MapOfKey(_OfKey, Generic[K, V]):
    """The map of a key."""

    __slots__ = ("_entry",)

    _state: MapState

    def __init__(self, access: Access, prefix: bytes, key: bytes, named: NamedState) -> None:
        super().__init__(access, prefix, key, named)
        self._entry = named.entry

    def get(self, key: K) -> V | None:
        """The value of an entry; None when there is none."""
        with self._reading():
            found = self._state.getValue(_row(key, self._entry))
        return None if found is None else self._value(found)

    def set(self, key: K, value: V) -> None:
        """Set an entry; raises StateSchemaError when it is not of the declared types."""
        with self._changing():
            self._state.updateValue((key,), (value,))

    def delete(self, key: K) -> None:
        """Remove an entry, if it is there."""
        with self._changing():
            self._state.removeKey((key,))

    def items(self) -> list[tuple[K, V]]:
        """All entries, in the byte order of their stored keys."""
        with self._reading():
            shown, value_of = self._entry, self._value
            return [(shown(key), value_of(value)) for key, value in self._state.iterator()]

    def clear(self) -> None:
        """Remove all entries."""
        with self._changing():
            self._state.clear()


def _row(key: Any, shown: Shown) -> tuple[Any, ...]:
    """The tuple that is stored of what a program sees of it."""
    return key if shown is tuple else (key,)


_HANDLES: Mapping[type, type[_OfKey]] = {
    ValueState: ValueOfKey,
    AggregateState: ValueOfKey,
    ListState: ListOfKey,
    MapState: MapOfKey,
}


class KeyStates:
    """The states of one key, each an attribute of its name."""

    def __init__(
        self, access: Access, states: Mapping[str, NamedState], prefix: bytes, key: bytes
    ) -> None:
        self._access = access
        self._states = states
        self._prefix = prefix
        self._key = key

    def __getattr__(self, name: str) -> Any:
        try:
            named = self._states[name]
        except KeyError:
            raise AttributeError(
                f"no state {name!r} was declared; there are {', '.join(self._states) or 'none'}"
            ) from None
        handle = _HANDLES[type(named.state)](self._access, self._prefix, self._key, named)
        self.__dict__[name] = handle
        return handle
