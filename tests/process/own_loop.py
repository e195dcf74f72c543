"""A program with a loop of its own: counts words and writes what it counted, killed by its test."""

import os
import sys
import time
from pathlib import Path

import tidelog
from tidelog import (
    CheckpointConfig,
    FileSink,
    JobConfig,
    MapState,
    MaterializeConfig,
    SqliteSink,
    ValueState,
)

PAUSE_S = 0.001
"""Before each line, so that a small file lasts until the program is killed."""


def main(url: str, lines: str, released: str, output: str) -> None:
    """Count every line of a file once, and stop behind the last one when released."""
    config = JobConfig(
        checkpoint=CheckpointConfig(interval=0.05), materialize=MaterializeConfig(interval=0.2)
    )
    states = {"count": ValueState(int), "files": MapState(str, int)}
    sinks = {
        "files": FileSink(output, "text"),
        "rows": SqliteSink(f"{output}.db", "counts", {"word": "text", "n": "integer"}),
    }
    with tidelog.open(url, state=states, config=config, sinks=sinks) as db:
        at = (db.position or {}).get("lines", 0)
        with open(lines, "rb") as file:  # noqa: PTH123
            file.seek(at)
            for line in iter(file.readline, b""):
                if not Path(released).exists():
                    time.sleep(PAUSE_S)
                if os.stat(lines).st_size - file.tell() < 200:  # noqa: PTH116
                    while not Path(released).exists():
                        time.sleep(0.01)
                for word in line.decode().split():
                    key = db.key(word)
                    count = (key.count.get() or 0) + 1
                    key.count.set(count)
                    db.write("files", f"{word} {count}")
                    db.write("rows", (word, count))
                    key.files.set("lines", file.tell())
                db.advance("lines", file.tell())
        assert db.checkpoint().operators


if __name__ == "__main__":
    main(*sys.argv[1:])
