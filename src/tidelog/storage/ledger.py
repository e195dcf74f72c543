"""The names of the data objects that belong to a running job.

Invariant: a name is recorded before its upload starts, so an upload whose outcome is unknown is
still accounted for, and forgotten only after its deletion succeeded.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Set


class Ledger:
    """Objects written or inherited by this generation, and those being worked on."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._busy: set[str] = set()
        self._parts: dict[str, dict[str, int]] = {}

    @property
    def busy(self) -> frozenset[str]:
        """Objects that an upload in progress will refer to; they must not be collected."""
        return frozenset(self._busy)

    def begin(self, name: str) -> None:
        """Record `name` and protect it from collection until `done`."""
        self.names.add(name)
        self._busy.add(name)

    def done(self, names: Iterable[str]) -> None:
        """End the protection: an object without references may be deleted now."""
        self._busy.difference_update(names)

    def describe(self, descriptor: str, parts: Mapping[str, int]) -> None:
        """Record which objects a descriptor refers to, and their bytes."""
        self._parts[descriptor] = dict(parts)
        self.names.add(descriptor)
        self.names.update(parts)

    def parts(self, descriptor: str) -> Mapping[str, int]:
        """Objects a descriptor refers to, and their bytes; nothing for an unknown one."""
        return self._parts.get(descriptor, {})

    def sizes(self) -> dict[str, int]:
        """Bytes of all objects that the known descriptors refer to."""
        return dict(ChainMap(*self._parts.values()))

    def closure(self, names: Set[str]) -> set[str]:
        """`names` and everything the descriptors among them refer to."""
        return set(names).union(*map(self.parts, names))

    def inherit(self, names: Iterable[str]) -> None:
        """Take over objects of an older generation."""
        self.names.update(names)

    def hand_over(self, in_use: Set[str]) -> frozenset[str]:
        """Return all names, for another ledger, and forget them, except descriptors `in_use`."""
        names, self.names = frozenset(self.names), set()
        self._parts = {name: parts for name, parts in self._parts.items() if name in in_use}
        return names

    def forget(self, name: str) -> None:
        """The object is gone."""
        self.names.discard(name)
        self._parts.pop(name, None)
