"""The expected state that a user's function computes: how it is called, and what it may return.

Invariant: the function gets what the checkpoint covers, never what the state holds.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidelog.errors import ConfigError, TidelogError, UserFunctionError
from tidelog.runtime.user_code import imported
from tidelog.verify.expected.values import Shape, key_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Request:
    """What the function of `--against` is asked for: the content of one state at a checkpoint."""

    url: str
    checkpoint: int
    """Slot, or batch of a Spark query."""
    operator: str
    state: str
    positions: Mapping[str, Any] = field(default_factory=dict)
    """How far the input was read. By source: `{split: {"done": bool, "position": ...}}`, as
    `tidelog restore` shows it; of a Spark query its offsets, by the number of the source."""
    final: bool = False
    """The job ended with this checkpoint: it has read all of its input."""
    spark: "SparkSession | None" = None
    """The session the verification runs on; None with --engine local."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What to compare with what; `operator` and `state` may be None where there is but one."""

    name: str
    """The function, as the user named it."""
    function: Callable[[Request], Any]
    operator: str | None = None
    state: str | None = None


def load_function(name: str) -> Callable[[Request], Any]:
    """The function `module:function`; raises ConfigError when there is none, UserFunctionError
    when its module cannot be imported.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise _misnamed(name, "no colon with a name on both sides")
    function = imported(f"--against {name}", module_name, attribute)
    if not callable(function):
        raise _misnamed(name, f"a {type(function).__name__}")
    takes = bool(inspect.signature(function).parameters)

    def ask(asked: Request) -> Any:
        try:
            return function(asked) if takes else function()
        except TidelogError:
            raise
        except Exception as error:
            raise _raised(name, error) from error

    return ask


def is_frame(answer: Any) -> bool:
    """Whether an answer is a DataFrame of Spark."""
    return hasattr(answer, "toLocalIterator") and hasattr(answer, "rdd")


def pairs(answer: Any, shape: Shape, name: str) -> Iterator[tuple[str, str]]:
    """Keys and values of an answer as text; raises ConfigError when it is no answer."""
    if is_frame(answer):
        rows: Iterable[Any] = answer.toLocalIterator()
    elif isinstance(answer, Mapping):
        rows = answer.items()
    elif isinstance(answer, Iterable) and not isinstance(answer, (str, bytes)):
        rows = answer
    else:
        raise _no_answer(name, f"a {type(answer).__name__}")
    try:
        for row in rows:
            yield pair(row, shape, name)
    except TidelogError:
        raise
    except Exception as error:  # of a generator
        raise _raised(name, error) from error


def pair(row: Any, shape: Shape, name: str) -> tuple[str, str]:
    """One key and its value as text; raises ConfigError."""
    if not isinstance(row, (tuple, list)) or len(row) != 2:
        raise _no_answer(name, f"the element {row!r}"[:200])
    try:
        return key_text(row[0]), shape.text(row[1])
    except (TypeError, ValueError, AttributeError) as error:
        raise _no_answer(name, f"the element {row!r} ({error})"[:200]) from error


def _misnamed(name: str, found: str) -> ConfigError:
    return ConfigError(
        f"--against {name}",
        expected="module:function, of a module here or on PYTHONPATH",
        found=found,
        action="correct the name, or run from the directory that holds the module",
    )


def _no_answer(name: str, found: str) -> ConfigError:
    return ConfigError(
        f"the answer of {name}",
        expected="a dict, (key, value) pairs or a DataFrame of two columns, with values of the "
        "state's shape",
        found=found,
        action="correct the function; docs/guides/verify.md describes its answer",
    )


def _raised(what: str, error: Exception) -> UserFunctionError:
    return UserFunctionError(
        what,
        expected="to return",
        found=f"{type(error).__name__}: {error}",
        action="fix the function and verify again",
    )
