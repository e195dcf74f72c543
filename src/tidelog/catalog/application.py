"""An application whose state is in many stores: one document, and a store for each partition.

Invariants: the document is created once, before the first partition, and never changed; the store
of a partition is one like any other. Format: docs/internals/format.md, "Partitions".
"""

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from tidelog.checkpoint.slots import list_slots
from tidelog.errors import ConfigError, ObjectExistsError, ObjectNotFoundError
from tidelog.options.units import plural
from tidelog.storage.document import FORMAT_VERSION, open_document, seal_document
from tidelog.storage.object_names import (
    APPLICATION,
    MOST_PARTITIONS,
    PARTITIONS,
    partition_of,
    partition_path,
)
from tidelog.storage.port import ObjectStore, create_once

_SHOWN: Final = 3


class Application(msgspec.Struct, frozen=True):
    """What holds for all partitions."""

    name: str
    partitions: int | None
    """How many there are; None: as many as the input has."""
    format: int = FORMAT_VERSION


async def read_application(store: ObjectStore) -> Application | None:
    """The application at the URL of `store`; None when there is none."""
    try:
        data = await store.get(APPLICATION)
    except ObjectNotFoundError:
        return None
    return open_document(data, f"{store.url}/{APPLICATION}", Application)


async def begin_application(store: ObjectStore, application: Application) -> Application:
    """The application at the URL of `store`, which begins now if there is none.

    Raises ConfigError when it has another name or number of partitions, and for the store of a job.
    """
    existing = await read_application(store)
    if existing is None:
        if await list_slots(store):
            raise ConfigError(
                f"application {store.url}",
                expected="a place for the stores of partitions",
                found="the store of a job, or of a program that has all state to itself",
                action="choose another URL; what is here is opened with tidelog.open",
            )
        try:
            await create_once(store, APPLICATION, seal_document(application))
        except ObjectExistsError:
            existing = await read_application(store)
    existing = existing or application
    if existing.name != application.name:
        raise _other(store, "name", repr(existing.name), repr(application.name))
    if application.partitions is not None and existing.partitions != application.partitions:
        recorded = (
            "a number that was never said" if existing.partitions is None else existing.partitions
        )
        raise _other(store, "partitions", recorded, application.partitions)
    return existing


def _other(store: ObjectStore, what: str, expected: object, actual: object) -> ConfigError:
    return ConfigError(
        f"{what} of application {store.url}",
        expected=f"{expected}, as at its first start",
        found=str(actual),
        action="say the same, or choose another URL: keys would be looked for in other partitions",
    )


async def stored_partitions(store: ObjectStore) -> AsyncIterator[int]:
    """The partitions that have a store, in ascending order; one LIST for each."""
    after = ""
    while (info := await anext(store.list(PARTITIONS, after), None)) is not None:
        partition = partition_of(info.name)
        # Names after all of this partition, also when it is no partition of ours.
        after = f"{PARTITIONS}{info.name.split('/', 2)[1]}0"
        if partition is not None:
            yield partition


async def refuse_application(store: ObjectStore) -> None:
    """Raises ConfigError for the URL of an application: each partition has a store of its own."""
    if await read_application(store) is None:
        return
    urls = [f"{store.url}/{partition_path(p)}" async for p in stored_partitions(store)]
    listed = ", ".join(urls[:_SHOWN]) + (", ..." if len(urls) > _SHOWN else "")
    raise ConfigError(
        f"store {store.url}",
        expected="the store of a job or of one partition",
        found=f"an application with stores of {plural(len(urls), 'partition')}: {listed or 'none'}",
        action="name the URL of a partition; `tidelog inspect URL` lists them, and programs open "
        "them with tidelog.open_partitions",
    )


def check_partition(partition: int, application: Application) -> None:
    """Raises ConfigError for a number that is none of its partitions."""
    partitions = MOST_PARTITIONS if application.partitions is None else application.partitions
    if not isinstance(partition, int) or not 0 <= partition < partitions:
        raise ConfigError(
            f"partition {partition!r}",
            expected=f"a number from 0 to {partitions - 1}",
            found="another one" if isinstance(partition, int) else f"a {type(partition).__name__}",
            action="pass the numbers of the input's partitions, or what partition_of answers",
        )
