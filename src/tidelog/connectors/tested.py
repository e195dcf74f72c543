"""The newest versions of clients' libraries that the connectors were tested with."""

import logging
from functools import cache
from importlib import metadata
from typing import Final

from tidelog.events import Event

logger = logging.getLogger(__name__)

TESTED: Final = {
    "confluent-kafka": (2, 16),
    "psycopg": (3, 3),
    "pyarrow": (26, 0),
    "pyiceberg": (0, 12),
}
"""Major and minor, by the name to install; those of `just newest`."""


def note_version(library: str) -> None:
    """Log a library that is newer than what was tested, once."""
    _note(library, metadata.version(library))


@cache
def _note(library: str, version: str) -> None:
    major, minor = TESTED[library]
    numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()]
    if numbers > [major, minor]:
        Event.LIBRARY_NOT_TESTED.log(
            logger, library=library, version=version, tested=f"{major}.{minor}"
        )
