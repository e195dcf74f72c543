"""An object store in a bucket of Google Cloud Storage.

Invariants: one call here is one request of the JSON API; a create carries `ifGenerationMatch=0`,
which the server checks in one step with the write; the checksum of what is written goes with it,
and the server refuses other bytes.

gcsfs finds the credentials and renews them; its own requests are not used, because they are
repeated and leave only some of the answers to be told apart. One request may be of any size here,
so nothing is written in parts.
"""

import base64
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cached_property
from json import JSONDecodeError, dumps, loads
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import google_crc32c
from gcsfs.core import GCSFileSystem
from google.auth import exceptions as google

from tidelog.effects import Effects
from tidelog.errors import ObjectNotFoundError, TidelogError
from tidelog.storage import errors
from tidelog.storage.cloud_options import (
    CloudOptions,
    bucket_and_prefix,
    checked_endpoint,
    cloud_options,
)
from tidelog.storage.connection import Connection
from tidelog.storage.port import ObjectInfo, PlainStore

_OWN: Final = frozenset({"token", "project"})
_WITHOUT: Final = frozenset({"server_side_encryption", "path_style", "multipart_above"})
_TIMEOUT: Final = aiohttp.ClientTimeout(total=300, sock_connect=5, sock_read=60)
_PAGE: Final = 1000
_EMULATOR: Final = "STORAGE_EMULATOR_HOST"
_NO_ANSWER: Final = (aiohttp.ClientError, google.TransportError, OSError, TimeoutError)


def open_gcs_store(url: str, effects: Effects, options: Mapping[str, Any]) -> "GcsStore":
    """The store of `gs://bucket/prefix`; `options` are those of docs/guides/object-stores.md.

    Without `token` among them the usual Google credentials hold. Raises ConfigError for a URL
    without a bucket.
    """
    return GcsStore(url, *bucket_and_prefix(url), effects, options)


def open_on_filesystem(url: str, filesystem: GCSFileSystem, effects: Effects) -> "GcsStore":
    """The store of `gs://bucket/prefix`, reached by another file system with the same arguments."""
    return GcsStore(url, *bucket_and_prefix(url), effects, {}, filesystem)


async def _disconnect(filesystem: GCSFileSystem) -> None:
    await filesystem.session.close()


class GcsStore(PlainStore):
    """Objects below one prefix of one bucket.

    Every method raises StoreUnreachableError, AccessDeniedError, StorageError, and ConfigError
    for a bucket or option that is wrong.
    """

    def __init__(
        self,
        url: str,
        bucket: str,
        prefix: str,
        effects: Effects,
        options: Mapping[str, Any],
        model: GCSFileSystem | None = None,
    ) -> None:
        """With a `model` its arguments are those of the connection, and there are no options."""
        self.url = url.rstrip("/")
        self._bucket = bucket
        self._root = f"{prefix}/" if prefix else ""
        self._effects = effects
        self._options = options
        self._model = model
        self._connection = Connection(self.url, self._connected, _disconnect)

    def apart(self, effects: Effects) -> "GcsStore":
        prefix = self._root.rstrip("/")
        return GcsStore(self.url, self._bucket, prefix, effects, self._options, self._model)

    async def put(self, name: str, data: bytes) -> None:
        await self._write(name, data, {})

    async def create(self, name: str, data: bytes) -> None:
        errors.check_content(name, data)
        await self._write(name, data, {"ifGenerationMatch": "0"})

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            await self.head(name)  # HTTP has no empty range, and the name must exist all the same
            return b""
        end = "" if length is None else start + length - 1
        ranged = {"Range": f"bytes={start}-{end}"} if start or length is not None else {}
        try:
            return await self._ask("GET", name, "/download", {"alt": "media"}, headers=ranged)
        except errors.EmptyRangeError:
            return b""

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Names in ascending order, a thousand per request."""
        query = {
            "prefix": f"{self._root}{prefix}",
            "maxResults": str(_PAGE),
            "fields": "items(name,size),nextPageToken",
        }
        if start_after:
            query["startOffset"] = f"{self._root}{start_after}"
        while True:
            page = loads(await self._ask("GET", None, "", query, about=f"{prefix}*"))
            for item in page.get("items", ()):
                name = item["name"].removeprefix(self._root)
                if name > start_after and not name.endswith("/"):
                    yield ObjectInfo(name, int(item["size"]))
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    async def head(self, name: str) -> ObjectInfo:
        resource = loads(await self._ask("GET", name, "", {"fields": "size"}))
        return ObjectInfo(name, int(resource["size"]))

    async def delete(self, name: str) -> None:
        with suppress(ObjectNotFoundError):
            await self._ask("DELETE", name, "", {})

    async def close(self) -> None:
        await self._connection.close()

    @cached_property
    def _settings(self) -> tuple[CloudOptions, dict[str, Any]]:
        common, rest = cloud_options(self.url, self._options, cloud_names=_OWN, without=_WITHOUT)
        if common.endpoint_url:
            rest["endpoint_url"] = checked_endpoint(self.url, common.endpoint_url)
        elif os.environ.get(_EMULATOR):
            rest.setdefault("token", "anon")  # as Google's own clients ask an emulator
        return common, rest

    @cached_property
    def _tls(self) -> ssl.SSLContext | bool:
        certificates = self._settings[0].certificates(self.url)
        if certificates is None:
            return True
        context = ssl.create_default_context()
        context.load_verify_locations(cadata=certificates.decode("ascii"))
        return context

    async def _write(self, name: str, data: bytes, condition: Mapping[str, str]) -> None:
        common, _ = self._settings
        checksum = base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
        about = {"name": f"{self._root}{name}", "crc32c": checksum}
        if common.storage_class:
            about["storageClass"] = common.storage_class
        query = {"uploadType": "multipart", **condition}
        if common.kms_key:
            query["kmsKeyName"] = common.kms_key
        boundary = self._effects.token()
        part = f"--{boundary}\r\nContent-Type: "
        body = (
            f"{part}application/json; charset=UTF-8\r\n\r\n{dumps(about)}\r\n"
            f"{part}application/octet-stream\r\n\r\n"
        ).encode() + b"%s\r\n--%s--" % (data, boundary.encode())
        kind = {"Content-Type": f"multipart/related; boundary={boundary}"}
        await self._ask("POST", None, "/upload", query, headers=kind, body=body, about=name)

    async def _ask(
        self,
        method: str,
        name: str | None,
        service: str,
        query: Mapping[str, str],
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        about: str | None = None,
    ) -> bytes:
        """The answer to one request for the object `name`, or else for the bucket's objects.

        `about` names what is asked for where `name` does not.
        """
        what = about or name or ""
        path = "" if name is None else f"/{quote(self._root + name, safe='')}"
        try:
            client = await self._connection.get()
            common, _ = self._settings
            project = client.project if client.requester_pays is True else client.requester_pays
            project = common.request_payer or project
            payer = {"userProject": project} if project else {}
            async with client.session.request(
                method,
                f"{client._location}{service}/storage/v1/b/{quote(self._bucket)}/o{path}",
                params={**query, **payer},
                headers=client._get_headers(headers),
                data=body,
                timeout=_TIMEOUT,
                ssl=self._tls,
                proxy=common.proxy,
            ) as answer:
                content: bytes = await answer.read()
                status = answer.status
        except TidelogError:
            raise
        except _NO_ANSWER as error:
            reason = str(error) or type(error).__name__
            raise errors.store_unreachable(errors.object_at(self.url, what), reason) from error
        except google.GoogleAuthError as error:
            raise errors.access_denied(errors.object_at(self.url, what), str(error)) from error
        except ValueError as error:
            raise errors.wrong_settings(self.url, str(error)) from error
        if status < 300:
            return content
        raise self._refusal(status, content, what, creates="ifGenerationMatch" in query)

    async def _connected(self) -> GCSFileSystem:
        filesystem = await self._effects.offload.run(self._connect)
        await filesystem._set_session()
        return filesystem

    def _connect(self) -> GCSFileSystem:
        model = self._model
        kind, positional, arguments = GCSFileSystem, (), self._settings[1]
        if model is not None:
            kind, positional, arguments = type(model), model.storage_args, model.storage_options
        own = {"asynchronous": True, "skip_instance_cache": True, "use_listings_cache": False}
        return kind(*positional, **{**arguments, **own})

    def _refusal(self, status: int, content: bytes, name: str, *, creates: bool) -> Exception:
        text = content.decode("utf-8", "replace")
        try:
            error = loads(text)["error"]
            message = str(error["message"])
        except (JSONDecodeError, KeyError, TypeError):
            message = text.strip()[:200]
        code = "NoSuchBucket" if status == 404 and "bucket" in message else ""
        return errors.from_answer(status, code, message, self.url, name, creates=creates)
