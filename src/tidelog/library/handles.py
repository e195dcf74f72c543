"""The states of one key, as a program sees them.

Invariants: every operation has the lock from its first look at the state to its last; a change
opens the calling thread's step before it is made.
"""

from collections.abc import Callable, Iterable, Mapping
from types import new_class
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from tidelog.errors import StateSchemaError
from tidelog.library.state_lock import StateLock
from tidelog.library.states import NamedState, Shown, is_attribute
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import ListState, MapState, append

K = TypeVar("K")
V = TypeVar("V")


class ValueOperations:
    """What the operations on a `Value` need, of whichever key: they look nothing up."""

    __slots__ = ("changing", "held", "hold", "lock", "put", "read", "shown", "stored")

    def __init__(self, lock: StateLock, named: NamedState) -> None:
        rows, codec = named.state.keyed.rows, named.state.keyed.codec
        self.lock, self.held, self.changing = lock, lock.held, lock.changing
        self.stored, self.put = rows.get, rows.put
        self.hold, self.read, self.shown = codec.hold, codec.read, named.value


class ValueOfKey(Struct, Generic[V], eq=False):
    """The value of a key."""

    _of: ValueOperations
    _row: bytes

    def get(self) -> V | None:
        """The value; None when there is none."""
        of = self._of
        with of.held:
            if of.lock.busy:
                of.lock.yield_to_loop()
            held = of.stored(self._row)
            found = None if held is None else of.read(held)
        return None if found is None else of.shown(found)

    def set(self, value: V) -> None:
        """Set the value; raises StateSchemaError when it is not of the declared type."""
        self._put(self._of.hold((value,)))

    def delete(self) -> None:
        """Remove the value, if there is one."""
        self._put(None)

    def _put(self, held: Any) -> None:
        of = self._of
        with of.held:
            if of.lock.busy:
                of.lock.yield_to_loop()
            of.changing()
            of.put(self._row, held)


class _OfKey(Struct, eq=False):
    """Several rows of a key, which are found by the backend's current key."""

    _lock: StateLock
    _backend: KeyedBackend
    _named: NamedState
    _state: Any
    _prefix: bytes
    _key: bytes

    def _use_key(self) -> None:
        if self._lock.busy:
            self._lock.yield_to_loop()
        self._backend.key_prefix, self._backend.key = self._prefix, self._key

    def _change_key(self) -> None:
        if self._lock.busy:
            self._lock.yield_to_loop()
        self._lock.changing()
        self._backend.key_prefix, self._backend.key = self._prefix, self._key

    def _clear(self) -> None:
        with self._lock.held:
            self._change_key()
            self._state.clear()


class ListOfKey(_OfKey, Generic[V], eq=False):
    """The list of a key."""

    def get(self) -> list[V]:
        """The elements of the key's list, in the order in which they were appended."""
        with self._lock.held:
            self._use_key()
            return list(map(self._named.value, self._state.get()))

    def append(self, element: V) -> None:
        """Add an element at the end; raises StateSchemaError when it is not of the type."""
        held = [self._state.element.hold((element,))]
        with self._lock.held:
            self._change_key()
            self._append(held)

    def set(self, elements: list[V]) -> None:
        """Replace all elements; raises StateSchemaError as `append`."""
        if not isinstance(elements, Iterable) or isinstance(elements, str | bytes | dict):
            raise StateSchemaError(
                "set(...) of a List",
                expected="a list of its elements",
                found=repr(elements),
                action="pass a list, or append one element",
            )
        hold = self._state.element.hold
        held = [hold((element,)) for element in elements]
        with self._lock.held:
            self._change_key()
            self._state.clear()
            self._append(held)

    def delete(self) -> None:
        """Remove all elements."""
        self._clear()

    def _append(self, held: list[Any]) -> None:
        keyed = self._state.keyed
        append(self._backend, keyed.rows, keyed.row(), held)


class MapOfKey(_OfKey, Generic[K, V], eq=False):
    """The map of a key."""

    def get(self, key: K) -> V | None:
        """The value of an entry; None when there is none."""
        with self._lock.held:
            self._use_key()
            found = self._state.getValue(_row(key, self._named.entry))
        return None if found is None else self._named.value(found)

    def set(self, key: K, value: V) -> None:
        """Set an entry; raises StateSchemaError when it is not of the declared types."""
        self._put(self._state.user_key.store((key,)), self._state.keyed.codec.hold((value,)))

    def delete(self, key: K) -> None:
        """Remove an entry, if it is there."""
        self._put(self._state.user_key.store((key,)), None)

    def items(self) -> list[tuple[K, V]]:
        """All entries, in the byte order of their stored keys."""
        shown, value_of = self._named.entry, self._named.value
        with self._lock.held:
            self._use_key()
            return [(shown(key), value_of(value)) for key, value in self._state.iterator()]

    def clear(self) -> None:
        """Remove all entries."""
        self._clear()

    def _put(self, entry: bytes, held: Any) -> None:
        keyed = self._state.keyed
        with self._lock.held:
            self._change_key()
            keyed.rows.put(keyed.row() + entry, held)


def _row(key: Any, shown: Shown) -> tuple[Any, ...]:
    """The tuple that is stored of what a program sees of it."""
    return key if shown is tuple else (key,)


class KeyStates(Struct, eq=False):
    """The states of one key, each an attribute of its name."""

    _prefix: bytes
    _key: bytes

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def states_of_keys(
    lock: StateLock, backend: KeyedBackend, states: Mapping[str, NamedState]
) -> type[KeyStates]:
    """The `KeyStates` of these states: a class, as its attributes cost less than looking up names.

    An error of Python about a name that is not declared names the class, and so those that are.
    """
    attributes = {
        name: property(_handle(lock, backend, each))
        for name, each in states.items()
        if is_attribute(name)  # a job's processor may have others, which can be scanned
    }
    name = f"KeyStates({', '.join(attributes)})"
    return new_class(name, (KeyStates,), exec_body=lambda body: body.update(attributes))


def _handle(
    lock: StateLock, backend: KeyedBackend, named: NamedState
) -> Callable[[KeyStates], ValueOfKey[Any] | _OfKey]:
    match named.state:
        case ListState():
            return lambda key: ListOfKey(lock, backend, named, named.state, key._prefix, key._key)
        case MapState():
            return lambda key: MapOfKey(lock, backend, named, named.state, key._prefix, key._key)
    operations, state = ValueOperations(lock, named), named.state.keyed.row_of(b"", b"")
    return lambda key: ValueOfKey(operations, key._prefix + state + key._key)
