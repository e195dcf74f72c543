"""Reading sources the way a task does: split by split, with positions that went through msgpack."""

from typing import Any

import msgspec

from tidelog.runtime.source import Source, SplitReader


def stored(position: Any) -> Any:
    """A position as a checkpoint gives it back."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(position))


def drain(reader: SplitReader) -> list[Any]:
    """All records up to the end of a bounded split."""
    records: list[Any] = []
    while (batch := reader.read()) is not None:
        records += batch
    reader.close()
    return records


def read_all(source: Source) -> list[Any]:
    """All records of a bounded source, split after split."""
    return [record for split in source.discover() for record in drain(source.open(split, None))]


def check_every_restart(source: Source, split: str, expected: list[Any]) -> None:
    """Restart from every position the reader passes; each gives exactly the remaining records."""
    reader, seen = source.open(split, None), 0
    while True:
        again = source.open(split, stored(reader.position))
        assert drain(again) == expected[seen:]
        if (batch := reader.read()) is None:
            break
        seen += len(batch)
    reader.close()
    assert seen == len(expected)
