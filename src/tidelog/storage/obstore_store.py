"""An object store in a bucket of S3 or a container of Azure, through obstore.

Invariants: one call here is one request, or one multipart upload for an object above the limit:
the library's own retries are off, because the policy of `tidelog.storage.retry` is the one that
counts; every refusal is judged by its HTTP status and code, which stand in the library's message.

The library's blocking calls run in threads of this store's own. Its asynchronous ones answer from
threads that are not Python's: such a thread that still waits for the interpreter when the process
ends takes the process down with SIGABRT (docs/decisions/014-clouds.md).
"""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeVar

import obstore

from tidelog.concurrency import in_time
from tidelog.effects import Effects, ThreadOffload
from tidelog.errors import ObjectNotFoundError, TidelogError, require
from tidelog.storage import errors
from tidelog.storage.cloud_options import CloudOptions
from tidelog.storage.port import ObjectInfo, ObjectPart, PlainStore

T = TypeVar("T")

NO_RETRIES: Final[Any] = {"max_retries": 0}
_REQUEST: Final = timedelta(minutes=5)
_SILENCE: Final = timedelta(minutes=1)
_PART: Final = 16 * 2**20
_PARTS_AT_ONCE: Final = 4
_PAGE: Final = 1000
_THREADS: Final = 256
"""As many requests can be under way."""
_REFUSED: Final = re.compile(
    r"status code: (\d{3}) ?([^:\n]*)(?:: ?(.*?))?(?:\n\s*\n+Debug source|$)", re.DOTALL
)
_PAST_THE_END: Final = "Wanted range starting at"
"""The library's own check of an answer that has no bytes of the range."""
_IN_A_BATCH: Final = re.compile(r": ([^:]*) \(code: (\d{3})\)")
_MOVED: Final = "redirect without LOCATION"
"""What is left of an answer that sends the client to another region."""
_NO_ANSWER: Final = re.compile(r"HTTP error: (.*?)(?:\n\s*\n+Debug source|$)", re.DOTALL)
_CAUSE: Final = re.compile(r'(?:message|error): "([^"]*)"|InvalidCertificate\(\s*(\w+)')
"""What the system or TLS has said, within the library's account of a request without an answer."""
_CODE: Final = re.compile(r"<Code>\s*([^<\s]*)")
_MESSAGE: Final = re.compile(r"<Message>\s*([^<]*)")


class ObstoreStore(PlainStore):
    """Objects below one prefix of one bucket or container.

    `client` gives the library's store for a request and `common` its options; they run in a thread
    and may raise errors of `tidelog.errors`. Every method raises StoreUnreachableError,
    AccessDeniedError, StorageError, and ConfigError for a bucket, region or option that is wrong;
    the writing ones StoreFullError.
    """

    def __init__(
        self, url: str, prefix: str, client: Callable[[], Any], common: Callable[[], CloudOptions]
    ) -> None:
        # The library writes no such names.
        usable = not (prefix and {"", ".", ".."} & set(prefix.split("/")))
        require("store URL", repr(url), usable, "a path without //, /./ and /../")
        self.url = url.rstrip("/")
        self._root = f"{prefix}/" if prefix else ""
        self._client = client
        self._common = common
        self._threads = ThreadOffload(_THREADS)

    def apart(self, effects: Effects) -> "ObstoreStore":
        """With threads of its own."""
        return ObstoreStore(self.url, self._root.rstrip("/"), self._client, self._common)

    async def put(self, name: str, data: bytes) -> None:
        await self._write(name, data, mode="overwrite")

    async def create(self, name: str, data: bytes) -> None:
        """Also raises ConditionalPutError, where the server knows no conditional writes."""
        errors.check_content(name, data)
        await self._write(name, data, mode="create")

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            await self.head(name)  # HTTP has no empty range, and the name must exist all the same
            return b""
        try:
            return await self._call(name, lambda client: self._read(client, name, start, length))
        except errors.EmptyRangeError:
            return b""

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        """A thread for each object, whose parts the library asks for side by side."""
        objects: dict[str, list[ObjectPart]] = defaultdict(list)
        for part in parts:
            objects[part.name].append(part)
        asked = [self._parts_of_one(*item) for item in objects.items()]
        contents: dict[ObjectPart, bytes] = {}
        for answer in await in_time(asked, patience_s):
            contents |= answer or {}
        return [contents.get(part) for part in parts]

    async def _parts_of_one(
        self, name: str, parts: Sequence[ObjectPart]
    ) -> dict[ObjectPart, bytes]:
        if len(parts) == 1:
            return {parts[0]: await self.get(*parts[0])}
        contents = await self._call(
            name,
            lambda client: obstore.get_ranges(
                client,
                self._path(name),
                starts=[part.start for part in parts],
                lengths=[part.length for part in parts],
                coalesce=0,
            ),
        )
        return {part: content.to_bytes() for part, content in zip(parts, contents, strict=True)}

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Names in ascending order, a thousand per request."""
        # The library lists folders.
        folder = f"{self._root}{prefix}".rpartition("/")[0]
        after = f"{self._root}{start_after}" if start_after else None
        stream = await self._call(
            f"{prefix}*",
            lambda client: iter(
                obstore.list(client, folder or None, offset=after, chunk_size=_PAGE)
            ),
        )
        while True:
            page = await self._call(f"{prefix}*", lambda _: next(stream, None))
            if page is None:
                return
            for item in page:
                name = item["path"].removeprefix(self._root)
                if name.startswith(prefix) and name > start_after:
                    yield ObjectInfo(name, item["size"])

    async def head(self, name: str) -> ObjectInfo:
        meta = await self._call(name, lambda client: obstore.head(client, self._path(name)))
        return ObjectInfo(name, meta["size"])

    async def delete(self, name: str) -> None:
        with suppress(ObjectNotFoundError):
            await self._call(name, lambda client: obstore.delete(client, self._path(name)))

    async def close(self) -> None:
        """End the threads; those of requests that nobody waits for any more end with these."""
        self._threads.close(wait=False)

    def _path(self, name: str) -> str:
        return f"{self._root}{name}"

    def _read(self, client: Any, name: str, start: int, length: int | None) -> bytes:
        if length is not None:
            content = obstore.get_range(client, self._path(name), start=start, length=length)
            return content.to_bytes()
        ranged: Any = {"range": {"offset": start}} if start else None
        return obstore.get(client, self._path(name), options=ranged).bytes().to_bytes()

    async def _write(self, name: str, data: bytes, *, mode: Any) -> None:
        def write(client: Any) -> None:
            common = self._common()
            in_class = common.storage_class
            obstore.put(
                client,
                self._path(name),
                data,
                mode=mode,
                attributes={"Storage-Class": in_class} if in_class else None,
                use_multipart=mode == "overwrite" and len(data) > common.multipart_above,
                chunk_size=_PART,
                max_concurrency=_PARTS_AT_ONCE,
            )

        await self._call(name, write, creates=mode == "create")

    async def _call(self, name: str, ask: Callable[[Any], T], *, creates: bool = False) -> T:
        try:
            return await self._threads.run(lambda: ask(self._client()))
        except TidelogError:
            raise
        except Exception as error:
            raise translated(error, self.url, name, creates=creates) from error


def client_options(
    url: str, common: CloudOptions, *, headers: Mapping[str, str] | None = None
) -> Any:
    """How the library connects, and what each request carries; raises ConfigError."""
    options: dict[str, Any] = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=5),
        "read_timeout": _SILENCE,
        "timeout": _REQUEST,
    }
    if headers:
        options["default_headers"] = dict(headers)
    if common.proxy:
        options["proxy_url"] = common.proxy
    if (certificates := common.certificates(url)) is not None:
        options["root_certificate"] = certificates
    return options


def translated(error: Exception, url: str, name: str, *, creates: bool) -> Exception:
    """The error to raise for a failure of the library, or EmptyRangeError.

    `creates` says that the request was a create-if-absent.
    """
    text = str(error)
    if refused := _REFUSED.search(text):
        status, reason, body = int(refused[1]), refused[2], (refused[3] or "").strip()
        code_match, message_match = _CODE.search(body), _MESSAGE.search(body)
        # A HEAD is answered without a body: its status is all the code there is.
        without_code = "" if body else str(status)
        code = code_match[1] if code_match else without_code
        message = message_match[1].strip() if message_match else body[:200] or reason
        return errors.from_answer(status, code, message, url, name, creates=creates)
    if refused := _IN_A_BATCH.search(text):
        status = int(refused[2])
        return errors.from_answer(status, "", refused[1], url, name, creates=creates)
    what, first = errors.object_at(url, name), text.partition("\n")[0]
    if _PAST_THE_END in text:
        return errors.EmptyRangeError()
    if _MOVED in text:
        message = "the bucket must be addressed at its own endpoint"
        return errors.from_answer(301, "PermanentRedirect", message, url, name, creates=creates)
    if lost := _NO_ANSWER.search(text):
        why = ": ".join(part for part in (lost[1].strip(), _cause(text)) if part)
        return errors.store_unreachable(what, why or first)
    return errors.storage_failed(what, f"{type(error).__name__}: {first}")


def _cause(text: str) -> str:
    causes = [words or f"invalid certificate, {kind}" for words, kind in _CAUSE.findall(text)]
    return causes[-1] if causes else ""
