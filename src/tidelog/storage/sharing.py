"""Objects that two stores on one local disk share: one file with a name in each store.

Invariant: a shared file is never changed, and each store may delete its own name: the file system
keeps the bytes until the last name is gone. So nobody has to know who else uses them.
"""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tidelog.effects import Effects
from tidelog.events import Event
from tidelog.storage.disk import make_directory, sync_directory
from tidelog.storage.object_names import check_name
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)

_SCHEME: Final = "file"


async def share(source: ObjectStore, target: ObjectStore, name: str, effects: Effects) -> bool:
    """Give an object of a local store a name in another one.

    False when that cannot be: a store is not local, the two are on different disks, the disk knows
    no links, or the object is not there. Then it has to be copied, which says what is wrong.
    """
    there, here = _root(source), _root(target)
    if there is None or here is None:
        return False
    check_name(name)
    try:
        await effects.offload.run(_link, there, here, name)
    except OSError as error:
        Event.OBJECT_NOT_LINKED.log(logger, object=name, error=error)
        return False
    return True


def _link(source: Path, target: Path, name: str) -> None:
    path = target / name
    make_directory(path.parent)
    with suppress(FileExistsError):
        path.hardlink_to(source / name)
    if not path.samefile(source / name):
        raise FileExistsError(name)
    sync_directory(path.parent)


def _root(store: ObjectStore) -> Path | None:
    parts = urlsplit(store.url)
    return Path(unquote(parts.path)) if parts.scheme == _SCHEME else None
