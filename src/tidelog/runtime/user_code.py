"""Calls into user code: errors are wrapped once, with the innermost name, the line, the record."""

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import wraps
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any, Final, ParamSpec, TypeVar

from tidelog.credentials import shows_records
from tidelog.errors import (
    ConfigError,
    StateSchemaError,
    TidelogError,
    UnavailableError,
    UserFunctionError,
    require,
)
from tidelog.events import Event

logger = logging.getLogger(__name__)


FAILURES: Final = (Exception, SystemExit, CancelledError)
"""What a function fails with: one that exits or is cancelled by itself ends no job."""

_MISTAKES: Final = (AttributeError, NameError, SyntaxError, TypeError)
"""Exceptions of code that is wrong, whatever is outside of it."""

P = ParamSpec("P")
T = TypeVar("T")


def check_plain(function: Callable[..., Any], name: str, *, many: bool = False) -> None:
    """Raises ConfigError for what cannot be called, and for a function of an operator that gives a
    coroutine or, unless it is to give `many` records, a generator: its code would not run.
    """
    what = f"the function of {name}"
    require(what, repr(function), callable(function), "a function")
    plain = not iscoroutinefunction(function)
    require(what, _name_of(function), plain, "one that is not `async`: its code would not run")
    plain = many or not isgeneratorfunction(function)
    require(what, _name_of(function), plain, "one that returns its result, without `yield`")


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", None) or repr(function)


class user_code:
    """A context that turns an exception of user code into a UserFunctionError that names `what`.

    There is no `await` in the block: a CancelledError in it is the function's own.

    A class, because it is entered once per key: a generator would cost a microsecond more.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        """Nothing to set up."""

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, FAILURES) and not isinstance(cause, TidelogError):
            raise UserFunctionError(
                self._what,
                found=f"{_said_by(cause)}{_site_of(cause)}",
                action="fix the function and start the job again; it resumes from its last "
                "checkpoint",
            ) from _shown_cause(cause)


class job_definition:
    """A context for code that defines a job: each of its errors names the line of that code.

    An exception of the code becomes a ConfigError that names `what`: an UnavailableError where it
    may be of something outside, which another start may find.
    """

    def __init__(self, what: str, *, may_exit: bool = False) -> None:
        """`may_exit`: SystemExit is of a parser of arguments, which has said what is wrong."""
        self._what = what
        self._may_exit = may_exit

    def __enter__(self) -> None:
        """Nothing to set up."""

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, UnavailableError) or not isinstance(cause, (*FAILURES, ConfigError)):
            return
        if isinstance(cause, SystemExit) and self._may_exit:
            return
        if isinstance(cause, ConfigError):
            site = _site_of(cause)
            if site:
                raise cause.found_at(site) from cause
        elif not isinstance(cause, TidelogError):
            is_mistake = isinstance(cause, _MISTAKES)
            raise (ConfigError if is_mistake else UnavailableError)(
                self._what,
                expected="code that runs",
                found=f"{_said_by(cause)}{_site_of(cause)}",
                action="correct it and start again",
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


def _site_of(cause: BaseException) -> str:
    from tidelog.runtime.failure_site import site_of  # noqa: PLC0415  # only for what fails

    return site_of(cause)


def _shown_cause(cause: BaseException) -> BaseException:
    """The exception as a traceback may show it: its text may have values of the record."""
    if shows_records():
        return cause
    return Exception(_said_by(cause)).with_traceback(cause.__traceback__)


def _said_by(cause: BaseException | None) -> str:
    kind = type(cause).__name__
    if not shows_records():
        return f"{kind}, whose text is left out (show_records)"
    try:
        return f"{kind}: {cause}".rstrip(" .\n")
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
