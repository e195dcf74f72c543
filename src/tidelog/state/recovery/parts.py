"""Parts of files that reads have missed, and the calls that fetch them: some requests in each.

A read misses hundreds of blocks at a time, in as many places. A call for each would take the
processor longer than all that is done with the rows.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tidelog.errors import ObjectNotFoundError
from tidelog.state.recovery.partial_file import PartialFile
from tidelog.storage.port import ObjectPart, ObjectStore

_PARTS_IN_A_CALL: Final = 16
"""A call takes the time of its slowest request."""
_GAP: Final = 16 << 10
"""Parts of a file that are no further apart are one request: so much passes the link in less time
than a request takes the processor."""


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


async def read_call(call: Call, store: ObjectStore, ahead: int = 0) -> None:
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
        await _read_spans(spans, store)


class _Span(NamedTuple):
    file: PartialFile
    start: int
    end: int


async def _read_spans(spans: Sequence[_Span], store: ObjectStore) -> None:
    parts = [ObjectPart(file.object.object, start, end - start) for file, start, end in spans]
    try:
        contents = await store.get_parts(parts)
    except ObjectNotFoundError:
        # One by one it is known which.
        contents = [await file.read(store, start, end - start) for file, start, end in spans]
    for (file, start, end), content in zip(spans, contents, strict=True):
        file.write_part(start, end - start, content)
