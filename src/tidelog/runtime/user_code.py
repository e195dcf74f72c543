"""Calls into user code: their errors are wrapped once, at the innermost place with a name."""

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final, ParamSpec, TypeVar

from tidelog.errors import ConfigError, StateSchemaError, TidelogError, UserFunctionError, require
from tidelog.events import Event

logger = logging.getLogger(__name__)


FAILURES: Final = (Exception, SystemExit, CancelledError)
"""What a function fails with: one that exits or is cancelled by itself ends no job."""

P = ParamSpec("P")
T = TypeVar("T")


def check_plain(function: Callable[..., Any], name: str) -> None:
    """Raises ConfigError for what cannot be called, and for a function of an operator that gives a
    coroutine, which would be lost or taken for its result.
    """
    plain = not iscoroutinefunction(function)
    require(f"the function of {name}", function, plain, "one that is not `async`: nobody awaits it")
    require(f"the function of {name}", repr(function), callable(function), "a function")


class user_code:
    """A context that turns an exception of user code into a UserFunctionError that names `what`.

    There is no `await` in the block: a CancelledError in it is the function's own.

    A class, because it is entered once per key: a generator would cost a microsecond more.
    """

    __slots__ = ("_what",)
    expected = "to return"
    action = "fix the function and start the job again; it resumes from its last checkpoint"

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        """Nothing to set up."""

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, FAILURES) and not isinstance(cause, TidelogError):
            raise UserFunctionError(
                self._what,
                expected=self.expected,
                found=_said_by(cause),
                action=self.action,
            ) from cause


class named_call(user_code):
    """Like `user_code`; an error of ours for what the user passed or stored names the `context`."""

    __slots__ = ("_context",)

    def __init__(self, what: str, context: Callable[[], str]) -> None:
        super().__init__(what)
        self._context = context

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        super().__exit__(kind, cause, trace)
        if isinstance(cause, ConfigError | StateSchemaError):
            context = self._context()
            if context not in cause.what:
                raise cause.within(context)


def _said_by(cause: BaseException | None) -> str:
    kind = type(cause).__name__
    try:
        return f"{kind}: {cause}"
    except Exception as error:  # the user's own text of it
        return f"{kind}, whose text fails with {type(error).__name__}: {error}"


def in_user_code(what: str, function: Callable[P, T]) -> Callable[P, T]:
    """A function of user code for a thread, where its errors are distinct from those of waiting."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with user_code(what):
            return function(*args, **kwargs)

    return call


def map_lazily(function: Callable[[Any], Any], records: Iterable[Any]) -> Iterator[Any]:
    """The function's results, one by one; raises RuntimeError as `map_all`."""
    # A bare `map` would end where the function raises StopIteration.
    for record in records:
        yield function(record)


def map_all(function: Callable[[Any], Any], records: Sequence[Any]) -> list[Any]:
    """The function's result for every record.

    Raises RuntimeError when the function raises StopIteration: that would end a bare `map` early,
    and records would be lost silently.
    """
    results = list(map(function, records))
    if len(results) != len(records):
        raise RuntimeError("the function raised StopIteration")
    return results


def close_all(what: str, closers: Iterable[Callable[[], None]], *, quietly: bool) -> None:
    """Call all `closers`, the last first, also when some fail; raises the error of one.

    `quietly` when there is another error already that says more: then the error is only logged.
    """
    try:
        with ExitStack() as stack:
            for close in closers:
                stack.callback(close)
    except TidelogError as error:
        if not quietly:
            raise
        Event.NOT_CLOSED.log(logger, what=what, error=error)
