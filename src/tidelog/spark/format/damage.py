"""Damage to the objects of a Spark checkpoint, as an error that says what to do about it.

Invariant: the next action is one that exists for Spark; slots of the embedded runtime do not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelog.errors import CorruptObjectError, FormatVersionError

BRING_BACK: Final = (
    "bring the object back from a backup, or restart the query from a batch that does not need it"
)
INDEX_LOST: Final = (
    "nothing has to be done, the segments' footers say the same; a restarted query writes the "
    "roll-up of these batches again, and one that stays damaged is needed by none: delete it"
)


def damaged(where: str, expected: str, found: str, action: str = BRING_BACK) -> CorruptObjectError:
    """The error for bytes of the object or place `where` that are not what was written."""
    return CorruptObjectError(f"{where} is damaged", expected=expected, found=found, action=action)


@contextmanager
def spark_action(action: str = BRING_BACK, location: str | None = None) -> Iterator[None]:
    """Replaces the next action of the damage that readers shared with the runtime find.

    `location` says where the bytes lie in the stored object: such a reader counts from the first
    byte that it was given.
    """
    try:
        yield
    except CorruptObjectError as error:
        raise CorruptObjectError(
            f"object {location} is damaged" if location else error.what,
            expected=error.expected,
            found=error.found,
            action=action,
        ) from error
    except FormatVersionError as error:
        raise FormatVersionError(
            f"object {location}" if location else error.what,
            expected=error.expected,
            found=error.found,
            action="use the tidelog release that wrote it, or a newer one",
        ) from error
