"""The types of the keys of a join's two streams, as one process has seen them. Pure."""

from collections.abc import Collection
from itertools import product

from tidelog.state.schema.types import Type, fits, union_text


class KeySides:
    """Whether keys of the left stream, side 0, and of the right one, side 1, can be equal at all:
    keys of different types never are, also 1 and 1.0.
    """

    def __init__(self) -> None:
        self._types: tuple[set[Type], set[Type]] = set(), set()
        self._has_warned = False

    def add(self, side: int, types: Collection[Type]) -> bool:
        """Add types of keys of a side; True the first time that no type is common to both."""
        if self._types[side].issuperset(types):
            return False
        self._types[side].update(types)
        if self._has_warned or self.disjoint_types is None:
            return False
        self._has_warned = True
        return True

    @property
    def disjoint_types(self) -> str | None:
        """The types of both sides if both have had keys and have no type in common, else None."""
        left_types, right_types = self._types
        pairs = product(left_types, right_types)
        common = any(fits(left, right, numbers_alike=False) for left, right in pairs)
        if not left_types or not right_types or common:
            return None
        return f"{union_text(left_types)} on the left, {union_text(right_types)} on the right"
