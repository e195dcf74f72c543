"""The states of one key, as a program sees them.

Invariants: every look at the state and every change of it is one operation of `Steps`; what is
changed is encoded before, so that a value that is refused changes nothing and opens no step.
"""

from collections.abc import Callable, Iterable, Mapping
from types import new_class
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from tidelog.errors import StateSchemaError
from tidelog.library.states import is_attribute
from tidelog.library.steps import Steps
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import ListHandle, MapHandle, append_elements, put_entry
from tidelog.state.stored_states import NamedState

K = TypeVar("K")
V = TypeVar("V")


class ValueOperations:
    """What the operations on a `ValueState` need, of whichever key: they look nothing up."""

    __slots__ = ("change", "decode", "get_row", "hold", "put", "read", "value_of")

    def __init__(self, steps: Steps, named_state: NamedState) -> None:
        rows, codec = named_state.state.keyed.rows, named_state.state.keyed.codec
        self.read, self.change = steps.read, steps.change
        self.get_row, self.put = rows.get, rows.put
        self.hold, self.decode, self.value_of = codec.hold, codec.read, named_state.value


class ValueOfKey(Struct, Generic[V], eq=False):
    """The value of a key."""

    _operations: ValueOperations
    _row: bytes

    def get(self) -> V | None:
        """The value; None when there is none."""
        operations = self._operations
        row_value = operations.read(operations.get_row, self._row)
        value = None if row_value is None else operations.decode(row_value)
        return None if value is None else operations.value_of(value)

    def set(self, value: V) -> None:
        """Set the value; raises StateSchemaError when it is not of the declared type."""
        operations = self._operations
        operations.change(operations.put, self._row, operations.hold((value,)))

    def delete(self) -> None:
        """Remove the value, if there is one."""
        operations = self._operations
        operations.change(operations.put, self._row, None)


class _OfKey(Struct, eq=False):
    """Several rows of a key, which are found by the backend's current key."""

    _steps: Steps
    _backend: KeyedBackend
    _named_state: NamedState
    _state: Any
    _prefix: bytes
    _key: bytes

    def _use_key(self) -> None:
        self._backend.key_prefix, self._backend.key = self._prefix, self._key

    def _clear(self) -> None:
        self._use_key()
        self._state.clear()


class ListOfKey(_OfKey, Generic[V], eq=False):
    """The list of a key."""

    def get(self) -> list[V]:
        """The elements of the key's list, in the order in which they were appended."""
        return self._steps.read(self._elements)

    def append(self, element: V) -> None:
        """Add an element at the end; raises StateSchemaError when it is not of the type."""
        self._steps.change(self._append, [self._state.element.hold((element,))])

    def set(self, elements: list[V]) -> None:
        """Replace all elements; raises StateSchemaError as `append`."""
        if not isinstance(elements, Iterable) or isinstance(elements, str | bytes | dict):
            raise StateSchemaError(
                "set(...) of a ListState",
                expected="a list of its elements",
                found=repr(elements),
                action="pass a list, or append one element",
            )
        hold = self._state.element.hold
        self._steps.change(self._replace, [hold((element,)) for element in elements])

    def delete(self) -> None:
        """Remove all elements."""
        self._steps.change(self._clear)

    def _elements(self) -> list[V]:
        self._use_key()
        return list(map(self._named_state.value, self._state.get()))

    def _append(self, elements: list[Any]) -> None:
        self._use_key()
        append_elements(self._backend, self._state, elements)

    def _replace(self, elements: list[Any]) -> None:
        self._clear()
        self._append(elements)


class MapOfKey(_OfKey, Generic[K, V], eq=False):
    """The map of a key."""

    def get(self, key: K) -> V | None:
        """The value of an entry; None when there is none."""
        # The tuple that is stored of what a program sees of it.
        row = key if self._named_state.entry is tuple else (key,)
        value = self._steps.read(self._value, row)
        return None if value is None else self._named_state.value(value)

    def set(self, key: K, value: V) -> None:
        """Set an entry; raises StateSchemaError when it is not of the declared types."""
        state = self._state
        self._steps.change(
            self._put, state.user_key.store((key,)), state.keyed.codec.hold((value,))
        )

    def delete(self, key: K) -> None:
        """Remove an entry, if it is there."""
        self._steps.change(self._put, self._state.user_key.store((key,)), None)

    def items(self) -> list[tuple[K, V]]:
        """All entries, in the byte order of their stored keys."""
        return self._steps.read(self._entries)

    def clear(self) -> None:
        """Remove all entries."""
        self._steps.change(self._clear)

    def _value(self, key: tuple[Any, ...]) -> Any:
        self._use_key()
        return self._state.getValue(key)

    def _entries(self) -> list[tuple[K, V]]:
        self._use_key()
        key_of, value_of = self._named_state.entry, self._named_state.value
        return [(key_of(key), value_of(value)) for key, value in self._state.iterator()]

    def _put(self, entry: bytes, value: Any) -> None:
        self._use_key()
        put_entry(self._state, entry, value)


class KeyStates(Struct, eq=False):
    """The states of one key, each an attribute of its name."""

    _prefix: bytes
    _key: bytes

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def states_of_keys(
    steps: Steps, backend: KeyedBackend, states: Mapping[str, NamedState]
) -> type[KeyStates]:
    """The `KeyStates` of these states: a class, as its attributes cost less than looking up names.

    An error of Python about a name that is not declared names the class, and so those that are.
    """
    attributes = {
        name: property(_handle(steps, backend, state))
        for name, state in states.items()
        if is_attribute(name)  # a job's processor may have others, which can be scanned
    }
    name = f"KeyStates({', '.join(attributes)})"
    return new_class(name, (KeyStates,), exec_body=lambda body: body.update(attributes))


def _handle(
    steps: Steps, backend: KeyedBackend, named_state: NamedState
) -> Callable[[KeyStates], ValueOfKey[Any] | _OfKey]:
    state = named_state.state
    match state:
        case ListHandle():
            return lambda key: ListOfKey(steps, backend, named_state, state, key._prefix, key._key)
        case MapHandle():
            return lambda key: MapOfKey(steps, backend, named_state, state, key._prefix, key._key)
    operations, row_prefix = ValueOperations(steps, named_state), state.keyed.row_of(b"", b"")
    return lambda key: ValueOfKey(operations, key._prefix + row_prefix + key._key)
