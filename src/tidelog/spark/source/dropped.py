"""Objects that are gone when a part is read: a reader pins nothing, for it never writes.

Invariant: what was planned is read in whole or is an error that says how to go on; a part whose
object is gone is never taken for one without rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.errors import ObjectNotFoundError, RestoreError, TidelogError


@contextmanager
def noticing_drops(url: str) -> Iterator[None]:
    """Within, an object of the store at `url` that is gone raises RestoreError with the reason."""
    try:
        yield
    except (ObjectNotFoundError, RestoreError) as error:
        if not isinstance(error, ObjectNotFoundError) and not _is_of_missing(error):
            raise
        raise _dropped(url, error) from error


def _is_of_missing(error: TidelogError) -> bool:
    return isinstance(error.__cause__, ObjectNotFoundError)


def _dropped(url: str, error: TidelogError) -> RestoreError:
    return RestoreError(
        f"{error.what} of {url}",
        expected="the object that was there when the load was planned",
        found="no such object: the running job or query has dropped it since, or it is lost",
        action="load again; to keep what is read for longer, let the job retain more checkpoints "
        "(`tidelog run --retain`), or the query more batches "
        "(spark.sql.streaming.minBatchesToRetain); if it stays, `tidelog verify` tells what is "
        "lost",
    )
