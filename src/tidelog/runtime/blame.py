"""Errors of user code: wrapped once, at the innermost place that knows a name."""

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.errors import TidelogError, UserFunctionError


class blame:
    """Turns an exception of user code within into a UserFunctionError that names `what`.

    A class, because it is entered once per key: a generator would cost a microsecond more.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        """Nothing to set up."""

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, Exception) and not isinstance(cause, TidelogError):
            raise UserFunctionError(
                self._what,
                expected="to return",
                found=f"{type(cause).__name__}: {cause}",
                action="fix the function and start the job again; it resumes from its last "
                "checkpoint",
            ) from cause


def every(function: Callable[[Any], Any], records: Sequence[Any]) -> list[Any]:
    """The function's result for every record.

    A StopIteration out of user code would end a bare `map` early, and records would be lost
    without a word.
    """
    results = list(map(function, records))
    if len(results) != len(records):
        raise RuntimeError("the function raised StopIteration")
    return results
