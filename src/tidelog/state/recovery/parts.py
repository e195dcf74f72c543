"""Parts of files that reads have missed, and the calls that fetch them: some requests in each.

A read misses hundreds of blocks at a time, in as many places. A call for each would take the
processor longer than all that is done with the rows.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from tidelog.concurrency import to_end
from tidelog.effects import Offload
from tidelog.errors import ObjectNotFoundError
from tidelog.events import Event
from tidelog.state.recovery.partial_file import PartialFile
from tidelog.storage.port import ObjectPart, ObjectStore
from tidelog.table.holes import FilePart

logger = logging.getLogger(__name__)

_PARTS_IN_A_CALL: Final = 32
_BYTES_IN_A_CALL: Final = 1 << 19
_GAP: Final = 16 << 10
"""Parts of a file that are no further apart are one request: so much passes the link in less time
than a request takes the processor."""

_LONG_WAIT_S: Final = 5.0
"""What still waits then is named in the log."""


class Part(NamedTuple):
    """A part of a file that a read has missed."""

    file: PartialFile
    offset: int | None
    """None: the tail of the file."""
    length: int
    """In bytes; 0 for a tail of which the length is not known."""


Call = Sequence[Part]
"""Parts that are fetched together: tails of files, or parts of their data."""


def in_calls(parts: Iterable[Part]) -> list[Call]:
    """Parts by the calls that fetch them: tails in their order, then others by their places."""
    tails: list[Part] = []
    data: list[Part] = []
    for part in parts:
        (tails if part.offset is None else data).append(part)
    data.sort(key=lambda part: (part.file.object.object, part.offset))
    calls: list[list[Part]] = []
    for some in (tails, data):
        size = _BYTES_IN_A_CALL
        for part in some:
            if size >= _BYTES_IN_A_CALL or len(calls[-1]) == _PARTS_IN_A_CALL:
                calls.append([])
                size = 0
            calls[-1].append(part)
            size += part.length or part.file.tail_guess()
    return list(calls)


async def read_call(
    call: Call,
    store: ObjectStore,
    offload: Offload,
    writing: asyncio.Lock,
    ahead: int = 0,
    patience_s: float | None = None,
) -> list[Part]:
    """Fetch parts and write them, each with at least `ahead` bytes from its beginning on.

    Returns what has not come in so many seconds, and is to be asked for again.
    """
    spans: list[_Span] = []
    for file, offset, length in call:
        size = file.object.size
        if offset is None:
            if file.tail_start is None:
                spans.append(_Span(file, size - (length or file.tail_guess()), size, is_tail=True))
        elif length == size:
            await file.fetch_rest(store, offload, lambda _: None)
            await offload.run_to_end(file.complete)
        elif not file.is_whole:
            end = min(offset + max(length, ahead), size)
            if spans and spans[-1].file is file and offset - spans[-1].end <= _GAP:
                spans[-1] = spans[-1]._replace(end=max(spans[-1].end, end))
            else:
                spans.append(_Span(file, offset, end))
    if not spans:
        return []
    contents = await _contents(spans, store, patience_s)
    # In a thread of its own: those of the pool check the files that arrive. One after the other:
    # each write gives the interpreter away, and many threads that want it back hinder all.
    async with writing:
        return await to_end(offload.wait(_write, spans, contents))


@contextmanager
def long_wait_logged(parts: Sequence[Part]) -> Iterator[None]:
    """Say what a read waits for while it still does."""
    name = parts[0].file.object.object

    def say() -> None:
        Event.READ_WAITED.log(logger, object=name, waited_s=_LONG_WAIT_S)

    timer = asyncio.get_running_loop().call_later(_LONG_WAIT_S, say)
    try:
        yield
    finally:
        timer.cancel()


class _Span(NamedTuple):
    file: PartialFile
    start: int
    end: int
    is_tail: bool = False


async def _contents(
    spans: Sequence[_Span], store: ObjectStore, patience_s: float | None
) -> Sequence[bytes | None]:
    parts = [ObjectPart(file.object.object, start, end - start) for file, start, end, _ in spans]
    try:
        return await store.get_parts(parts, patience_s)
    except ObjectNotFoundError:
        # One by one it is known which.
        return [await file.read(store, start, end - start) for file, start, end, _ in spans]


def _write(spans: Sequence[_Span], contents: Sequence[bytes | None]) -> list[Part]:
    """Returns what is not here yet."""
    left: list[Part] = []
    written: dict[PartialFile, list[FilePart]] = {}
    for (file, start, end, is_tail), content in zip(spans, contents, strict=True):
        if content is None:
            left.append(Part(file, None if is_tail else start, end - start))
            continue
        file.check_length(start, end - start, content)
        if not is_tail:
            written.setdefault(file, []).append(FilePart(start, content))
        elif needed := file.write_tail(content):
            left.append(Part(file, None, needed))
    for file, parts in written.items():
        file.write(parts)
    return left
