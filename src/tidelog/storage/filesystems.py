"""The store on a file system of fsspec that a program has made.

Invariant: a file system whose exclusive creation is not known to have one winner is refused before
anything is read or written: two starts of a job could both win the name of one checkpoint.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from tidelog.effects import Effects
from tidelog.errors import ConfigError
from tidelog.storage.local import LocalStore
from tidelog.storage.port import ObjectStore

_ADAPTERS: Final = {"s3fs.core.S3FileSystem": "s3fs_store", "gcsfs.core.GCSFileSystem": "gcs"}
"""Modules with the store of a class; by its name, for its library may not be installed."""


def open_on(
    filesystem: AbstractFileSystem, url: str, effects: Effects, options: Mapping[str, Any]
) -> ObjectStore:
    """The store at `url`, reached as `filesystem` is configured; nothing is contacted.

    Raises ConfigError for a file system of another scheme, for one that is not known to create
    exclusively, and for `options` beside it.
    """
    scheme = url.partition("://")[0] if "://" in url else "file"
    protocol = filesystem.protocol
    schemes = (protocol,) if isinstance(protocol, str) else tuple(protocol)
    if scheme not in schemes:
        raise ConfigError(
            f"store URL {url!r} with filesystem={_class(type(filesystem))}",
            expected=f"a URL of the file system: {', '.join(f'{name}://' for name in schemes)}",
            action="correct the URL, or pass the file system of its scheme",
        )
    if options:
        raise ConfigError(
            f"storage options for {url!r}",
            expected="none beside filesystem=, whose arguments are the options",
            found=", ".join(sorted(options)),
            action=f"pass them to {type(filesystem).__name__}(...)",
        )
    if type(filesystem) is LocalFileSystem:
        # Its exclusive creation would show a file before its content is complete.
        return LocalStore(filesystem._strip_protocol(url), effects)
    for kind in type(filesystem).__mro__:
        if (adapter := _ADAPTERS.get(_class(kind))) is not None:
            module = import_module(f"tidelog.storage.{adapter}")
            store: ObjectStore = module.open_on_filesystem(url, filesystem, effects)
            return store
    raise ConfigError(
        f"filesystem={_class(type(filesystem))}",
        expected="one that creates a file exclusively, in one step with its content: "
        "S3FileSystem of s3fs, GCSFileSystem of gcsfs or LocalFileSystem of fsspec",
        found="one that is not known to: two starts of a job could both win a checkpoint's name",
        action="leave filesystem= out: tidelog reaches s3://, gs://, az:// and directories itself, "
        "and other URLs can be read",
    )


def _class(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
