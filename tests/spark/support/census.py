"""A census of a checkpoint: whether exactly the objects are there that its commits need.

Reads the log with Python's readers, which share no code with the plug-in.
"""

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.spark.support.session import PATIENCE_S
from tidelog.effects import Effects
from tidelog.spark.checkpoint.checkpoint import (
    INDEX,
    LOG,
    SEGMENTS,
    QueryCheckpoint,
    is_sidecar,
    read_checkpoint,
)
from tidelog.spark.checkpoint.commits import NamedId
from tidelog.storage.local import LocalStore

_KNOWN = re.compile(rf"{SEGMENTS}[0-9a-f]{{8}}-.*-[0-9]{{8}}\.seg|{INDEX}[0-9]{{10}}\.json")


def assert_complete(checkpoint: Path, retained: int = 2) -> None:
    """Asserts that a checkpoint holds all that its newest `retained` commits need and nothing else.

    House-keeping runs at the same time as the query: it gets some time to end.
    """
    deadline = time.monotonic() + PATIENCE_S
    while problems := list(_problems(checkpoint, retained)):
        assert time.monotonic() < deadline, "\n".join(problems)
        time.sleep(0.1)


def _problems(directory: Path, retained: int) -> Iterator[str]:
    effects = Effects()
    with closing(effects.offload):
        found = asyncio.run(read_checkpoint(LocalStore(directory, effects)))
    yield from (f"{name}: {error}" for name, error in found.damaged.items())
    for name in (name for name in found.objects if not is_sidecar(name)):
        if name.startswith(LOG) and not _KNOWN.fullmatch(name):
            yield f"unknown object {name}"
        if ".changelog" in name:
            yield f"a changelog that is a file: {name}"
    yield from _strays(directory, found)
    for commit in list(found.commits.values())[-retained:]:
        yield from _missing(found, commit.batch)
    yield from (f"commits/{c.batch} has no index" for c in found.commits.values() if not c.index)


def _strays(directory: Path, found: QueryCheckpoint) -> Iterator[str]:
    """Segments that no index names: only the last run may still have some."""
    if not found.segments:
        return
    try:
        paths = [directory / SEGMENTS / name for name in found.segments]
        newest = max(paths, key=lambda path: path.stat().st_mtime_ns)
    except FileNotFoundError as gone:
        yield f"{gone}: removed while being counted"
        return
    named = {name for document in found.documents() for name in document.segments}
    for name in found.segments.keys() - named:
        if not name.startswith(newest.name.partition("-")[0]):
            yield f"stray {name}"


def _missing(found: QueryCheckpoint, batch: int) -> Iterator[str]:
    """What a commit names and the log does not have."""
    sizes = {name: size for doc in found.documents() for name, size in doc.segments.items()}
    entries = {NamedId(n.operator, n.partition, n.id): e for n, e in found.indexed.items()}
    for named in found.commits[batch].ids:
        if named not in entries:
            yield f"changelog {named} of batch {batch} is in no index"
            continue
        for piece in entries[named].pieces:
            size = sizes[piece.segment]
            if found.segment_bytes.get(piece.segment) != size or piece.offset + piece.length > size:
                yield f"changelog {named} of batch {batch} is not in {piece.segment}"
