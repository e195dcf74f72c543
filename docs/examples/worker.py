"""A program with a loop of its own: it counts the orders of each user, each once, however often it
is killed.

python worker.py data/orders out/worker-store
"""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import tidelog
from tidelog import ValueState


def orders(directory: str, after: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The orders after an offset: in place of a queue or a topic."""
    lines = [line for file in sorted(Path(directory).iterdir()) for line in file.open()]
    start = 0 if after is None else after + 1
    for offset, line in enumerate(islice(lines, start, None), start):
        yield offset, json.loads(line)


def main(directory: str, store: str) -> None:
    with tidelog.open(store, state={"orders": ValueState(int)}) as db:
        position = (db.position or {}).get("orders")
        for offset, order in orders(directory, position):
            count = db.key(order["user"]).orders
            count.set((count.get() or 0) + 1)
            db.advance("orders", offset)
        for user, number in db.scan("orders"):
            print(user, number)


if __name__ == "__main__":
    main(*sys.argv[1:])
