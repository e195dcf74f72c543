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
"""A call takes the time of its slowest request."""
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


Call = Sequence[Part]
"""Parts that are fetched together: the tail of a file, or parts of the data of some."""


def in_calls(parts: Iterable[Part]) -> list[Call]:
    """Parts by the calls that fetch them."""
    calls: list[Call] = []
    data: list[Part] = []
    for part in parts:
        if part.offset is None:
            calls.append((part,))
        else:
            data.append(part)
    data.sort(key=lambda part: (part.file.object.object, part.offset))
    starts = range(0, len(data), _PARTS_IN_A_CALL)
    return calls + [data[start : start + _PARTS_IN_A_CALL] for start in starts]


async def read_call(call: Call, store: ObjectStore, offload: Offload, ahead: int = 0) -> None:
    """Fetch parts and write them, each with at least `ahead` bytes from its beginning on."""
    spans: list[_Span] = []
    for file, offset, length in call:
        if offset is None:
            await file.read_tail(store)
        elif length == file.object.size:
            file.complete(await file.content(store))
        elif not file.is_whole:
            end = min(offset + max(length, ahead), file.object.size)
            if spans and spans[-1].file is file and offset - spans[-1].end <= _GAP:
                spans[-1] = spans[-1]._replace(end=max(spans[-1].end, end))
            else:
                spans.append(_Span(file, offset, end))
    if spans:
        contents = await _contents(spans, store)
        # In a thread of its own: those of the pool check the files that arrive.
        await to_end(offload.wait(_write, spans, contents))


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


async def _contents(spans: Sequence[_Span], store: ObjectStore) -> Sequence[bytes]:
    parts = [ObjectPart(file.object.object, start, end - start) for file, start, end in spans]
    try:
        return await store.get_parts(parts)
    except ObjectNotFoundError:
        # One by one it is known which.
        return [await file.read(store, start, end - start) for file, start, end in spans]


def _write(spans: Sequence[_Span], contents: Sequence[bytes]) -> None:
    written: dict[PartialFile, list[FilePart]] = {}
    for (file, start, end), content in zip(spans, contents, strict=True):
        file.check_length(start, end - start, content)
        written.setdefault(file, []).append(FilePart(start, content))
    for file, parts in written.items():
        file.write(parts)
