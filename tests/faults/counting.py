"""A word count that breaks off when a test wants it to, and what its store needs.

Whatever happened before, a start that finishes must have counted every word exactly.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.damage import needs
from tests.support.jobs import contents
from tests.support.pipelines import Outside, Portions, config, effects
from tidelog import Job, JobConfig, JobResult, JobRunner, Sink, Source, UploadConfig
from tidelog.checkpoint.manifest import Start, decode_entry
from tidelog.errors import UserFunctionError
from tidelog.ids import Slot
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

Objects = Mapping[str, bytes]

POISON = "poison"
WORDS = [f"w{number * number % 7}" for number in range(30)]
EXPECTED = Counter([*WORDS, *WORDS, POISON])


def source() -> Portions:
    """Two splits; the poison stands at the end of one of them."""
    return Portions({"left": [*WORDS, POISON], "right": WORDS})


def refuse_poison(word: str) -> str:
    """The user's mistake that breaks a job off."""
    if word == POISON:
        raise ValueError("cannot count poison")
    return word


def counting(
    sink: Sink,
    check: Callable[[str], str] = str,
    *,
    read: Source | None = None,
    name: str = "count",
) -> Job:
    """Words to (word, count) pairs."""
    job = Job("counting")
    words = job.source(read or source()).map(check, name="check").key_by(lambda word: word)
    words.aggregate(lambda _: 1, lambda a, b: a + b, name=name).sink(sink)
    return job


def settings(work_dir: Path | None = None, **changes: Any) -> JobConfig:
    """Table files, segments and many retained checkpoints, so that each can be damaged."""
    usual = {"table": "rocksdb", "retain": 20, "upload": UploadConfig(inline_bytes=0)}
    return config(work_dir=work_dir, **{**usual, **changes})


def start(
    job: Job,
    store: ObjectStore,
    chosen: JobConfig | None = None,
    *,
    restore_checkpoint: int | None = None,
    seed: int = 2,
) -> JobResult:
    """Run one incarnation of any job to its end, in virtual time."""
    slot = None if restore_checkpoint is None else Slot(restore_checkpoint)
    runner = JobRunner(job, store, chosen or settings(), effects(seed), restore_checkpoint=slot)
    return asyncio.run(runner.run())


def finish(
    store: ObjectStore, chosen: JobConfig | None = None, *, restore_checkpoint: int | None = None
) -> JobResult:
    """Start the mended job: it ends, and every word was counted right."""
    sink = Outside()
    result = start(counting(sink), store, chosen, restore_checkpoint=restore_checkpoint, seed=3)
    assert Counter(dict(sink.records)) == EXPECTED
    assert len(sink.records) == len(EXPECTED)
    return result


def broken_off(chosen: JobConfig | None = None) -> dict[str, bytes]:
    """The objects that a job leaves behind that broke off after some checkpoints."""
    store = MemoryStore()
    try:
        start(counting(Outside(), refuse_poison), store, chosen, seed=1)
    except UserFunctionError:
        return dict(contents(store))
    raise AssertionError("the job was meant to break off")


@cache
def usual() -> Objects:
    """What breaking off leaves behind with the usual settings."""
    return broken_off()


def checkpoints(objects: Objects) -> list[int]:
    """Slots with checkpoints, oldest first."""
    slots = sorted(slot for name in objects if (slot := object_names.slot_of(name)) is not None)
    return [s for s in slots if not _is_start(objects, object_names.checkpoint(s))]


def manifest(slot: int) -> str:
    return object_names.checkpoint(Slot(slot))


def newest(objects: Objects) -> int:
    """The slot of the newest checkpoint."""
    return checkpoints(objects)[-1]


def _is_start(objects: Objects, name: str) -> bool:
    return isinstance(decode_entry(objects[name], name), Start)


def newest_without(objects: Objects, name: str) -> int:
    """The newest checkpoint that does not need an object."""
    return max(slot for slot in checkpoints(objects) if name not in needs(objects, slot))


def written_since(store: ObjectStore, before: Objects) -> set[str]:
    """Names that are new in a store from which nothing else has changed."""
    after = contents(store)
    assert before.items() <= after.items()
    return set(after.keys() - before.keys())
