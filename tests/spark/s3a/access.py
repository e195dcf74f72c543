"""What an S3 server was asked, as its own access log tells it."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r".*?\] \S+ \S+ \S+ s3_(?P<operation>\S+) (?P<key>\S+) \S+ (?P<status>\d+) ")


@dataclass(frozen=True)
class Request:
    """One request about an object: the name of the operation, the object's key, the answer."""

    operation: str
    key: str
    status: int


class AccessLog:
    """The log of a server; it writes a request down before it answers it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def requests(self) -> list[Request]:
        """All requests so far, oldest first."""
        lines = self._path.read_text().splitlines()
        return [
            Request(match["operation"], match["key"], int(match["status"]))
            for match in map(_LINE.match, lines)
            if match
        ]

    def about(self, key: str) -> list[tuple[str, int]]:
        """Operations on one object, with their answers."""
        return [(each.operation, each.status) for each in self.requests() if each.key == key]

    def operations(self, since: int = 0) -> Counter[str]:
        """How often each operation was asked for, leaving out the first `since` requests."""
        return Counter(each.operation for each in self.requests()[since:])
