"""A function that gives one object several times, and changes it in between.

What it gave first would be lost: all records of the buffer would be the object as it was last.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tidelog.runtime.channels.copies import unchanging

_FIRST: Final = 16
"""The first buffers, all of which are checked."""
_THEN: Final = 8
"""After the first buffers, one of so many is checked."""


class Distinct:
    """Looks at the buffers that one function makes."""

    __slots__ = ("_buffers", "_last", "_last_got")

    def __init__(self) -> None:
        self._buffers = 0
        self._last: Any = None
        self._last_got: Any = None

    def check(self, made: Sequence[Any], of: Sequence[Any] = ()) -> None:
        """Raises ValueError for an object that is there twice, and that somebody could change.

        Objects that were twice in `of`, what the function got, are not its doing.
        """
        self._buffers += 1
        if (self._buffers > _FIRST and self._buffers % _THEN) or not made:
            return
        again = made[0] is self._last and not (of and of[0] is self._last_got)
        self._last, self._last_got = made[-1], of[-1] if of else None
        if not again and len(set(map(id, made))) == len(made):
            return
        times = Counter(map(id, made))
        got = Counter(map(id, of))
        for value in made:
            twice = times[id(value)] > max(1, got[id(value)]) or (again and value is made[0])
            if twice and not unchanging([value]):
                raise ValueError(
                    f"the same {type(value).__name__} was given twice, so what it was before it "
                    "was changed is lost; give a new object each time"
                )
