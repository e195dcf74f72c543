"""Damage to the objects of a Spark checkpoint, as an error that says what to do about it.

Invariant: the next action is one that exists for Spark; slots of the embedded runtime do not.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.errors import CorruptObjectError


def damaged(where: str, expected: str, found: str) -> CorruptObjectError:
    """The error for bytes of the object or place `where` that are not what was written."""
    return _damage(f"{where} is damaged", expected, found)


@contextmanager
def spark_action() -> Iterator[None]:
    """Replaces the next action of the damage that readers shared with the runtime find."""
    try:
        yield
    except CorruptObjectError as error:
        raise _damage(error.what, error.expected, error.found) from error


def _damage(what: str, expected: str | None, found: str | None) -> CorruptObjectError:
    return CorruptObjectError(
        what,
        expected=expected,
        found=found,
        action="bring the object back from a backup, or restart the query from a batch that "
        "does not need it",
    )
