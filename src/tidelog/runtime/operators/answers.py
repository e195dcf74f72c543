"""Functions of the user's that return None each time, as one without `return` does: said once.

Invariant: None may be meant, so nothing is refused; after its first other result a function is
called as it is.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from tidelog.events import Event
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.operator import Operator
from tidelog.state.objects.values import UntypedValues

logger = logging.getLogger(__name__)

_CALLS: Final = 1000
"""So many times a function may return None before that is no chance."""


class Watched:
    """A function whose operator looks at its results; one for all subtasks, which warn once."""

    __slots__ = ("function", "has_warned")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.has_warned = False

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


class Answers:
    """What a function returns in one subtask, until that is something else than None."""

    def __init__(
        self, operator: str, function: Callable[..., Any], use: Callable[[Callable[..., Any]], None]
    ) -> None:
        """`use` gets what to call instead of a Watched, and later the function itself."""
        self._operator = operator
        self._use = use
        self._watched = function if isinstance(function, Watched) else None
        self._calls = 0
        self._has_answered = False
        use(function if self._watched is None else self._call)

    def warn(self) -> None:
        """Say it where the function was called, and returned None each time."""
        watched, silent = self._watched, self._calls and not self._has_answered
        if watched is not None and silent and not watched.has_warned:
            watched.has_warned = True
            Event.FUNCTION_WITHOUT_ANSWER.log(logger, operator=self._operator, calls=self._calls)

    def _call(self, *args: Any) -> Any:
        assert self._watched is not None, "a function that nobody looks at is called itself"
        answer = self._watched.function(*args)
        if answer is None:
            self._calls += 1
            if self._calls == _CALLS:
                self.warn()
        elif not self._has_answered:
            self._has_answered = True
            self._use(self._watched.function)
        return answer


class Combining(Operator):
    """An operator that combines the values of records."""

    _combine: Callable[[Any, Any], Any]

    def _look(self, operator: str, values: UntypedValues) -> None:
        """Look at the results of `_combine`; `_combined` is it for what is stored."""

        def use(combine: Callable[[Any, Any], Any]) -> None:
            self._combine = combine
            self._combined = values.combining(combine)

        self._answers = Answers(operator, self._combine, use)

    def finish(self) -> Iterable[Batch]:
        self._answers.warn()
        return super().finish()
