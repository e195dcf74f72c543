"""An object store in a bucket of S3 or of a server that speaks its protocol.

Invariants: one call here is one request, or one multipart upload for very large objects: the
libraries' own retries are off, because the policy of `tidelog.storage.retry` is the one that
counts; every answer is judged by its HTTP status, whatever the libraries made of it.

One retry cannot be turned off: when a connection closes without an answer, aiohttp sends the
request a second time. So even the first attempt of a create can report our own object as taken.
"""

from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from s3fs import S3FileSystem

from tidelog.errors import ConfigError, ObjectNotFoundError
from tidelog.storage.errors import check_content
from tidelog.storage.port import ObjectInfo
from tidelog.storage.s3_errors import EmptyRangeError, translated

T = TypeVar("T")

_CONFIG: Final[Mapping[str, Any]] = {
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    "max_pool_connections": 64,
    "connect_timeout": 5,
    "read_timeout": 60,
}


def open_s3_store(url: str, options: Mapping[str, Any]) -> "S3Store":
    """The store of `s3://bucket/prefix`; `options` are those of `s3fs.S3FileSystem`.

    Without `endpoint_url`, `key` and `secret` among them the usual AWS environment variables and
    files hold. Raises ConfigError for a URL without a bucket.
    """
    parts = urlsplit(url)
    if not parts.netloc:
        raise ConfigError(
            f"store URL {url!r}",
            expected="s3://bucket or s3://bucket/prefix",
            found="no bucket",
            action="name the bucket",
        )
    config = {**_CONFIG, **options.get("config_kwargs", {})}
    filesystem = S3FileSystem(
        asynchronous=True,
        skip_instance_cache=True,
        use_listings_cache=False,
        **{**options, "config_kwargs": config},
    )
    filesystem.retries = 1
    return S3Store(filesystem, parts.netloc, parts.path.strip("/"))


class S3Store:
    """Objects below one prefix of one bucket.

    Every method raises StoreUnreachableError, AccessDeniedError, StorageError, and ConfigError
    for a bucket or region that is wrong; the writing ones StoreFullError.
    """

    request_metrics: Final = None
    cipher: Final = None

    def __init__(self, filesystem: S3FileSystem, bucket: str, prefix: str) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._filesystem = filesystem
        self._bucket = bucket
        self._root = f"{prefix}/" if prefix else ""

    async def put(self, name: str, data: bytes) -> None:
        """Write or overwrite `name`."""
        await self._write(name, data, mode="overwrite")

    async def create(self, name: str, data: bytes) -> None:
        """Write `name` if it is absent; raises ObjectExistsError.

        Raises ConditionalPutError where the server says that it knows no conditional writes.
        """
        check_content(name, data)
        await self._write(name, data, mode="create")

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range in bytes; raises ObjectNotFoundError."""
        if length == 0:
            await self.head(name)  # HTTP has no empty range, and the name must exist all the same
            return b""
        end = "" if length is None else start + length - 1
        ranged = {"Range": f"bytes={start}-{end}"} if start or length is not None else {}
        try:
            return await self._answer(name, self._read(name, ranged))
        except EmptyRangeError:
            return b""

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Names in ascending order, a thousand per request."""
        query = {"Prefix": f"{self._root}{prefix}"}
        if start_after:
            query["StartAfter"] = f"{self._root}{start_after}"
        while True:
            request = self._filesystem._call_s3("list_objects_v2", Bucket=self._bucket, **query)
            page = await self._answer(f"{prefix}*", request)
            found = page.get("Contents", ())
            for item in found:
                if not item["Key"].endswith("/"):  # a console's "folder", not an object of ours
                    yield ObjectInfo(item["Key"].removeprefix(self._root), item["Size"])
            if not found or not page.get("IsTruncated"):
                return
            query["StartAfter"] = found[-1]["Key"]

    async def head(self, name: str) -> ObjectInfo:
        """Size of `name` in bytes; raises ObjectNotFoundError."""
        answer = await self._answer(name, self._request("head_object", name))
        return ObjectInfo(name, answer["ContentLength"])

    async def delete(self, name: str) -> None:
        """Remove `name` if it is there."""
        try:
            await self._answer(name, self._request("delete_object", name))
        except ObjectNotFoundError:
            return

    async def close(self) -> None:
        """Close the connections."""
        if self._filesystem._s3 is not None:
            await (await self._filesystem.set_session()).close()

    async def _write(self, name: str, data: bytes, mode: str) -> None:
        path = f"{self._bucket}/{self._root}{name}"
        request = self._filesystem._pipe_file(path, data, mode=mode)
        await self._answer(name, request, creates=mode == "create")

    async def _read(self, name: str, ranged: Mapping[str, str]) -> bytes:
        answer = await self._request("get_object", name, **ranged)
        async with answer["Body"] as body:
            data: bytes = await body.read()
        return data

    def _request(self, method: str, name: str, **arguments: str) -> Awaitable[Any]:
        request: Awaitable[Any] = self._filesystem._call_s3(
            method, Bucket=self._bucket, Key=f"{self._root}{name}", **arguments
        )
        return request

    async def _answer(self, name: str, request: Awaitable[T], *, creates: bool = False) -> T:
        try:
            return await request
        except Exception as error:
            raise translated(error, self.url, name, creates=creates) from error
