"""From a URL to a ready object store.

Invariants: what leaves here is wrapped with retries and counters, whatever lies below, and with
encryption where a key is given; a library is imported only when a URL or a key needs it, for
`import botocore` alone takes a tenth of a second. A URL has no credentials in it, and those in
options and environment are masked wherever they would show. A `StoreAccess` holds no secret, only
where secrets are found, so it can be pickled and shown.
"""

import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from tidelog.credentials import hide
from tidelog.effects import Effects
from tidelog.errors import ConfigError, optional_library, require
from tidelog.storage.config import StorageConfig, s3_config_of_environment
from tidelog.storage.errors import check_url
from tidelog.storage.local import LocalStore
from tidelog.storage.log_store import StoreWithLog
from tidelog.storage.object_names import check_name
from tidelog.storage.port import ObjectInfo, ObjectPart, ObjectStore, PlainStore, RequestMetrics
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import LOCAL_POLICY, RetryPolicy

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_ENDPOINTS: Final = ("endpoint_url", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
"""Options and variables with the URL of a server, to which no credentials belong either."""
_LOCAL_SCHEMES: Final = frozenset({"", "file", "memory"})
_S3_CLIENTS: Final = {"obstore": ("s3", "s3"), "s3fs": ("s3fs_store", "s3fs")}
"""The module of each library that reaches S3, and the extra that installs it."""
_AZURE: Final = frozenset({"az", "abfs", "abfss"})
_GOOGLE: Final = frozenset({"gs", "gcs"})
_SCHEMES: Final = "|".join(_AZURE | _GOOGLE | {"file", "memory", "s3"})
_FEW_SLASHES: Final = re.compile(rf"((?:{_SCHEMES})(?=:)|[A-Za-z][A-Za-z0-9+.-]+(?=:/[^/])):.*")
"""What looks like a URL, and would be a directory with a colon in its name."""


Url = str | os.PathLike[str]
"""A URL of a store, or the path of a directory."""


def open_store(
    url: Url,
    *,
    policy: RetryPolicy | None = None,
    storage: StorageConfig | None = None,
    options: Mapping[str, Any] | None = None,
    filesystem: "AbstractFileSystem | None" = None,
    metrics: RequestMetrics | None = None,
    log_url: Url | None = None,
    encryption_key: str | None = None,
    path: str | None = None,
    connections: "Connections | None" = None,
    effects: Effects | None = None,
) -> ObjectStore:
    """Open the store at `url`; nothing is contacted before the first call.

    `url` is a path, `file:///path`, `memory://name` (one store per name and process),
    `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or a URL of any scheme that
    fsspec knows. `options` are for the store, and for that of the log where both URLs have one
    scheme: for clouds those of docs/guides/object-stores.md, such as `endpoint_url`, and without
    them the cloud's usual variables and files hold; for other schemes those of the file system.
    `storage` says which library sends the requests, the environment without it. With a
    `filesystem` of fsspec, such as `s3fs.S3FileSystem()`, its arguments say how they are sent, and
    there are no `options`; one that cannot create a file exclusively is refused.
    `log_url` chooses where the log of a new store goes, for ever; a store that exists knows where
    its log is. `encryption_key` says where the key of an encrypted store
    comes from: a file, `env:NAME` or `aws-kms:KEY`; with it an empty store becomes an encrypted
    one. With a `path` it is the store at `url/path`, its log at `log_url/path`, over `connections`
    that other paths share and that stay open. Raises ConfigError for an unknown scheme, a missing
    library, a malformed URL or one with credentials in it, or a key that cannot be read.
    """
    effects = effects or Effects()
    for location in (url, url if log_url is None else log_url):
        require(
            "store URL", repr(location), isinstance(location, str | os.PathLike), "a path or a URL"
        )
    url, log_url = os.fspath(url), None if log_url is None else os.fspath(log_url)
    counted = metrics or RequestMetrics()
    hide(options or {})
    hide({} if filesystem is None else filesystem.storage_options)
    hide(os.environ)
    for settings in (options or {}, os.environ):
        for name in _ENDPOINTS:
            check_url(name, str(settings.get(name) or ""))
    encrypted = None if encryption_key is None else _encryption(encryption_key, effects)

    def connected(where: str) -> ObjectStore:
        check_url("store URL", where)
        scheme = _scheme(where)
        store_options = (options if scheme == _scheme(url) else None) or {}
        if filesystem is not None and scheme == _scheme(url):
            module = import_module("tidelog.storage.filesystems")
            store: ObjectStore = module.open_on(filesystem, where, effects, store_options)
            return store
        return _open(scheme, where, effects, store_options, storage)

    def opened(where: str) -> ObjectStore:
        store = (connections or Connections()).below(where, path, connected)
        tried = (policy or RetryPolicy()) if is_remote(where) else LOCAL_POLICY
        retrying = RetryingStore(store, tried, effects, counted)
        return retrying if encrypted is None else encrypted(retrying)

    chosen = None if log_url is None else opened(_at(log_url, path))
    return StoreWithLog(opened(_at(url, path)), opened, effects.token, chosen)


def from_here(url: Url) -> Url:
    """What means the same when the program has changed its directory."""
    return url if _scheme(os.fspath(url)) else Path(url).absolute()


def _at(url: str, path: str | None) -> str:
    return url if path is None else f"{url.rstrip('/')}/{path}"


class Connections:
    """Connections to stores, each for many stores below one URL."""

    def __init__(self) -> None:
        self._stores: dict[str, ObjectStore] = {}

    def below(
        self, url: str, path: str | None, connect: Callable[[str], ObjectStore]
    ) -> ObjectStore:
        """The store at `url`, over the connection of what lies above the `path` at its end."""
        if path is None or not url.endswith(f"/{path}"):
            return connect(url)
        parent_url = url.removesuffix(f"/{path}")
        if parent_url not in self._stores:
            self._stores[parent_url] = connect(parent_url)
        return StoreBelow(self._stores[parent_url], path)

    async def close(self) -> None:
        """Close all of them, when no store uses them any more."""
        for store in self._stores.values():
            await store.close()


def is_remote(url: str) -> bool:
    """Whether a URL is of a store that is reached over the network."""
    return _scheme(url) not in _LOCAL_SCHEMES


def _scheme(url: str) -> str:
    return url.partition("://")[0] if "://" in url else ""


def _open(
    scheme: str,
    url: str,
    effects: Effects,
    options: Mapping[str, Any],
    storage: StorageConfig | None,
) -> ObjectStore:
    if scheme in _LOCAL_SCHEMES and options:
        raise ConfigError(
            f"storage options for {url!r}",
            expected="none",
            found=", ".join(sorted(options)),
            action="remove them; only remote stores have options",
        )
    if scheme == "":
        if not url:
            raise ConfigError(
                "store URL", expected="a path or URL", found="nothing", action="name one"
            )
        if match := _FEW_SLASHES.fullmatch(url):
            raise ConfigError(
                f"store URL {url!r}",
                expected="a path, or a URL with :// after its scheme",
                found="a scheme without it",
                action=f"write {match[1]}://..., or ./{url} for a directory of that name",
            )
        return LocalStore(url, effects)
    if scheme == "file":
        return LocalStore(_path_of(url), effects)
    if scheme == "memory":
        from tidelog.storage.memory import shared_memory_store  # noqa: PLC0415  # for tests

        return shared_memory_store(url.removeprefix("memory://"))
    if scheme == "s3":
        s3 = s3_config_of_environment() if storage is None else storage.s3
        module, extra = _S3_CLIENTS[s3.client]
        store: ObjectStore = _cloud(module, extra).open_s3_store(url, options)
    elif scheme in _AZURE:
        store = _cloud("azure", "az").open_azure_store(url, options)
    elif scheme in _GOOGLE:
        store = _cloud("gcs", "gs").open_gcs_store(url, effects, options)
    elif scheme in {"s3a", "s3n"}:
        raise ConfigError(
            f"store URL {url!r}",
            expected="s3://, which is the scheme of the same bucket here",
            found=f"{scheme}://, the scheme that Hadoop has for it",
            action=f"write s3{url.removeprefix(scheme)}",
        )
    elif scheme in {"http", "https"}:
        raise ConfigError(
            f"store URL {url!r}",
            expected="a store that can be written, such as s3://bucket/prefix",
            found="an address of the web",
            action="name the bucket; --endpoint says where an S3 service of your own is",
        )
    else:
        store = import_module("tidelog.storage.fsspec_store").open_fsspec_store(
            url, effects, options
        )
    return store


def _cloud(module: str, extra: str) -> Any:
    """The adapter of a cloud, whose library is installed with tidelog's `extra`."""
    with optional_library(f"store URLs with {extra}://", "the libraries of this cloud", extra):
        return import_module(f"tidelog.storage.{module}")


def encryption_library() -> AbstractContextManager[None]:
    """Raises ConfigError, which says what to install, when an import in the block fails."""
    return optional_library("encryption keys", "the library cryptography", "encryption")


def _encryption(key: str, effects: Effects) -> Callable[[ObjectStore], ObjectStore]:
    """Wraps a store so that its objects are encrypted."""
    with encryption_library():
        keys = import_module("tidelog.storage.encryption.keys")
        store = import_module("tidelog.storage.encryption.store")
    source = keys.key_source(key, effects)
    return lambda inner: store.EncryptedStore(inner, source, effects)


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    more = parts.query or parts.fragment
    if parts.netloc not in {"", "localhost"} or parts.path in {"", "/"} or more:
        raise ConfigError(
            f"store URL {url!r}",
            expected="file:///absolute/path on this machine, and no ? or # in it",
            found="a query or a fragment"
            if more
            else f"host {parts.netloc!r}, path {parts.path!r}",
            action="write three slashes before the path, and %3F and %23 for those",
        )
    return unquote(parts.path)


class StoreBelow(PlainStore):
    """The objects of `whole` below a path, under their names without it.

    The connections are those of the whole store, which stays open unless `closes` says otherwise.
    """

    def __init__(self, parent: ObjectStore, path: str, *, closes: bool = False) -> None:
        check_name(path)
        self.url = f"{parent.url.rstrip('/')}/{path}"
        self._parent = parent
        self._path = f"{path}/"
        self._closes = closes

    def apart(self, effects: Effects) -> "StoreBelow":
        return StoreBelow(self._parent.apart(effects), self._path.rstrip("/"), closes=True)

    async def close(self) -> None:
        if self._closes:
            await self._parent.close()

    async def put(self, name: str, data: bytes) -> None:
        await self._parent.put(self._path + name, data)

    async def create(self, name: str, data: bytes) -> None:
        await self._parent.create(self._path + name, data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._parent.get(self._path + name, start, length)

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        below = [part._replace(name=self._path + part.name) for part in parts]
        return await self._parent.get_parts(below, patience_s)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        after = self._path + start_after if start_after else ""
        async for info in self._parent.list(self._path + prefix, after):
            yield ObjectInfo(info.name.removeprefix(self._path), info.size)

    async def head(self, name: str) -> ObjectInfo:
        return ObjectInfo(name, (await self._parent.head(self._path + name)).size)

    async def delete(self, name: str) -> None:
        await self._parent.delete(self._path + name)


class StoreAccess(msgspec.Struct, frozen=True):
    """The options of commands that open stores."""

    endpoint: str | None = None
    """S3 endpoint; None: that of AWS, or what the environment says."""
    encryption_key: str | None = None
    """Where the key of an encrypted store comes from; None: the store is not encrypted."""
    storage: StorageConfig | None = None
    """Which libraries send requests; None: what the environment says."""

    def open(
        self,
        url: str,
        effects: Effects,
        *,
        policy: RetryPolicy | None = None,
        log_url: str | None = None,
    ) -> ObjectStore:
        """The store at a URL, a new one with its log at `log_url`; raises ConfigError."""
        return open_store(
            url,
            effects=effects,
            policy=policy,
            storage=self.storage,
            options=None if self.endpoint is None else {"endpoint_url": self.endpoint},
            log_url=log_url,
            encryption_key=self.encryption_key,
        )


PLAIN: Final = StoreAccess()
"""What a local store that is not encrypted needs: nothing."""
