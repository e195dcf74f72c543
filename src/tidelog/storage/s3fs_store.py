"""An object store in a bucket of S3, through s3fs, for those who have set up s3fs.

Invariants: one call here is one request: the retries of s3fs and of botocore are off, because the
policy of `tidelog.storage.retry` is the one that counts; a create carries `If-None-Match: *`; every
refusal is judged by its HTTP status and code, which are in the cause of the library's error.

One retry cannot be turned off: aiohttp sends a request again whose connection closed without an
answer. Requests run on the caller's event loop, so one that is given up ends. The library finds
credentials, roles, proxies and endpoints by its arguments and the configuration of fsspec.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import aiohttp
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from s3fs import S3FileSystem

from tidelog.effects import Effects
from tidelog.errors import ObjectNotFoundError, TidelogError
from tidelog.storage import errors
from tidelog.storage.cloud_options import bucket_and_prefix, checked_endpoint, cloud_options
from tidelog.storage.connection import Connection
from tidelog.storage.port import ObjectInfo, PlainStore

T = TypeVar("T")

_CONNECTIONS: Final = {"connect_timeout": 5, "read_timeout": 60, "max_pool_connections": 64}
"""Seconds to connect and without a byte, and how many requests can be under way, as for obstore."""
_PAGE: Final = 1000
_WITHOUT: Final = frozenset({"multipart_above"})
_CONDITION: Final = {"IfNoneMatch": "*"}
_DENIED: Final = (
    *(boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError),
    *(boto.SSOError, boto.TokenRetrievalError),
)
_NO_ANSWER: Final = (
    *(boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError, ResponseParserError),
    *(boto.FlexibleChecksumError, aiohttp.ClientError, TimeoutError, ConnectionError),
)


def open_s3_store(url: str, options: Mapping[str, Any]) -> "S3fsStore":
    """The store of `s3://bucket/prefix`; `options` are those of docs/guides/object-stores.md, and
    arguments of s3fs. Raises ConfigError for a URL without a bucket.
    """
    return S3fsStore(url, lambda: S3FileSystem(**_own(_arguments(url, options))))


def open_on_filesystem(url: str, filesystem: S3FileSystem, effects: Effects) -> "S3fsStore":
    """The store of `s3://bucket/prefix`, reached by another file system with the same arguments."""
    kind, positional = type(filesystem), filesystem.storage_args
    return S3fsStore(url, lambda: kind(*positional, **_own(filesystem.storage_options)))


def _arguments(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a store by the names of the library; raises ConfigError."""
    common, arguments = cloud_options(url, options, cloud_names=None, without=_WITHOUT)
    client = dict(arguments.get("client_kwargs") or {})
    config = dict(arguments.get("config_kwargs") or {})
    headers = dict(arguments.get("s3_additional_kwargs") or {})
    if region := arguments.pop("region", None):
        client["region_name"] = region
    if common.certificates(url) is not None:
        client["verify"] = common.ca_file
    if common.proxy:
        config["proxies"] = {"http": common.proxy, "https": common.proxy}
    if common.path_style is not None:
        config["s3"] = {"addressing_style": "path" if common.path_style else "virtual"}
    if common.storage_class:
        headers["StorageClass"] = common.storage_class
    if common.server_side_encryption or common.kms_key:
        headers["ServerSideEncryption"] = common.server_side_encryption or "aws:kms"
    if common.kms_key:
        headers["SSEKMSKeyId"] = common.kms_key
    if common.request_payer:
        arguments["requester_pays"] = True
    if common.endpoint_url:
        arguments["endpoint_url"] = checked_endpoint(url, common.endpoint_url)
    parts = {"client_kwargs": client, "config_kwargs": config, "s3_additional_kwargs": headers}
    return {**arguments, **parts}


def _own(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a file system for one store and one event loop, without retries."""
    config = {**_CONNECTIONS, **(arguments.get("config_kwargs") or {})}
    # Buckets with Object Lock refuse a write without a checksum.
    headers = {"ChecksumAlgorithm": "SHA256", **(arguments.get("s3_additional_kwargs") or {})}
    return {
        **arguments,
        "config_kwargs": {**config, "retries": {"total_max_attempts": 1}},
        "s3_additional_kwargs": headers,
        "asynchronous": True,
        "skip_instance_cache": True,
        "use_listings_cache": False,
    }


class S3fsStore(PlainStore):
    """Objects below one prefix of one bucket.

    `connect` makes the file system, on the first call. Every method raises StoreUnreachableError,
    AccessDeniedError, StorageError, and ConfigError for a bucket, region or option that is wrong;
    the writing ones StoreFullError.
    """

    def __init__(self, url: str, connect: Callable[[], S3FileSystem]) -> None:
        self._bucket, prefix = bucket_and_prefix(url)
        self.url = f"s3://{self._bucket}/{prefix}".rstrip("/")
        self._root = f"{prefix}/" if prefix else ""
        self._connect = connect
        self._connection = Connection(self.url, self._connected, _disconnect)

    def apart(self, effects: Effects) -> "S3fsStore":
        """A file system of the library is for one event loop."""
        return S3fsStore(self.url, self._connect)

    async def put(self, name: str, data: bytes) -> None:
        await self._call(name, lambda s3: s3._call_s3("put_object", **self._key(name), Body=data))

    async def create(self, name: str, data: bytes) -> None:
        """Also raises ConditionalPutError, where server or library know no conditional writes."""
        errors.check_content(name, data)

        async def write(s3: S3FileSystem) -> None:
            client = await s3.set_session()
            # s3fs leaves out what its botocore does not know, and the write would overwrite.
            if not s3._filter_kwargs(client.put_object, _CONDITION):
                raise errors.no_conditional_put(self.url, "a botocore older than 1.36")
            await s3._call_s3("put_object", **self._key(name), Body=data, **_CONDITION)

        await self._call(name, write, creates=True)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            await self.head(name)  # HTTP has no empty range, and the name must exist all the same
            return b""
        end = "" if length is None else start + length - 1
        ranged = {"Range": f"bytes={start}-{end}"} if start or length is not None else {}

        async def read(s3: S3FileSystem) -> bytes:
            answer = await s3._call_s3("get_object", **self._key(name), **ranged)
            async with answer["Body"] as body:
                content: bytes = await body.read()
            return content

        try:
            return await self._call(name, read)
        except errors.EmptyRangeError:
            return b""

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Names in ascending order, a thousand per request."""
        query: dict[str, Any] = {"Prefix": f"{self._root}{prefix}", "MaxKeys": _PAGE}
        if start_after:
            query["StartAfter"] = f"{self._root}{start_after}"
        while True:
            page = await self._call(
                f"{prefix}*",
                lambda s3: s3._call_s3("list_objects_v2", Bucket=self._bucket, **query),
            )
            for item in page.get("Contents", ()):
                name = item["Key"].removeprefix(self._root)
                if not name.endswith("/"):
                    yield ObjectInfo(name, item["Size"])
            if not page.get("IsTruncated"):
                return
            query["ContinuationToken"] = page["NextContinuationToken"]

    async def head(self, name: str) -> ObjectInfo:
        answer = await self._call(name, lambda s3: s3._call_s3("head_object", **self._key(name)))
        return ObjectInfo(name, answer["ContentLength"])

    async def delete(self, name: str) -> None:
        with suppress(ObjectNotFoundError):
            await self._call(name, lambda s3: s3._call_s3("delete_object", **self._key(name)))

    async def close(self) -> None:
        await self._connection.close()

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._root}{name}"}

    async def _call(
        self, name: str, ask: Callable[[S3FileSystem], Awaitable[T]], *, creates: bool = False
    ) -> T:
        try:
            return await ask(await self._connection.get())
        except TidelogError:
            raise
        except Exception as error:
            raise _translated(error, self.url, name, creates=creates) from error

    async def _connected(self) -> S3FileSystem:
        filesystem = self._connect()
        filesystem.retries = 1
        await filesystem.set_session()
        return filesystem


async def _disconnect(filesystem: S3FileSystem) -> None:
    await filesystem._s3.close()


def _translated(error: Exception, url: str, name: str, *, creates: bool) -> Exception:
    """The error to raise for a failure of the library, or EmptyRangeError.

    `creates` says that the request was a create-if-absent.
    """
    what = errors.object_at(url, name)
    cause = error if isinstance(error, boto.ClientError) else error.__cause__
    if isinstance(cause, boto.ClientError):
        refusal = cause.response.get("Error", {})
        status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code, message = refusal.get("Code", ""), refusal.get("Message", "")
        return errors.from_answer(status, code, message, url, name, creates=creates)
    reason = str(error) or type(error).__name__
    if isinstance(error, _DENIED):
        return errors.access_denied(what, reason)
    if isinstance(error, _NO_ANSWER):
        return errors.store_unreachable(what, reason)
    if isinstance(error, boto.BotoCoreError | TypeError | ValueError | KeyError):
        return errors.wrong_settings(url, reason)
    return errors.storage_failed(what, f"{type(error).__name__}: {error}")
