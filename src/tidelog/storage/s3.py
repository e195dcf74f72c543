"""An object store in a bucket of S3 or of a server that speaks its protocol.

Invariants: credentials, region and endpoint are found where every AWS client finds them: options,
environment, profile, the machine's role; a credential that was renewed is used from the next
request on.

One retry cannot be turned off: a request whose connection closes before it was written goes out
once more on another one.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any, Final

from botocore import exceptions as boto
from botocore.session import Session
from obstore.store import S3Store

from tidelog.errors import TidelogError
from tidelog.storage import errors
from tidelog.storage.cloud_options import (
    CloudOptions,
    bucket_and_prefix,
    checked_endpoint,
    cloud_options,
)
from tidelog.storage.obstore_store import NO_RETRIES, ObstoreStore, client_options

_DEFAULT_REGION: Final = "us-east-1"
_EXPRESS: Final = "--x-s3"
"""How the names of buckets of the class S3 Express One Zone end."""
_CREDENTIALS: Final = {"key": "access_key_id", "secret": "secret_access_key", "token": "token"}
"""Options with a credential, and what the library calls it."""
_OWN: Final = frozenset({*_CREDENTIALS, "anon", "profile", "region"})


def open_s3_store(url: str, options: Mapping[str, Any]) -> ObstoreStore:
    """The store of `s3://bucket/prefix`; `options` are those of docs/guides/object-stores.md.

    Without `endpoint_url`, `key` and `secret` among them the usual AWS environment variables and
    files hold. Raises ConfigError for a URL without a bucket.
    """
    bucket, prefix = bucket_and_prefix(url)
    root = f"s3://{bucket}/{prefix}".rstrip("/")
    connection = _Connection(root, bucket, dict(options))
    return ObstoreStore(root, prefix, connection.client, connection.common)


@dataclass(frozen=True, slots=True)
class _Settings:
    """The options of a store, read."""

    common: CloudOptions
    static: Mapping[str, str]
    """The credentials that were given, by the names of the library."""
    anonymous: bool
    profile: str | None
    region: str | None


class _Connection:
    """The library's store for a bucket, made anew when the credentials have been renewed."""

    def __init__(self, url: str, bucket: str, options: dict[str, Any]) -> None:
        self._url = url
        self._bucket = bucket
        self._options = options
        self._lock = Lock()
        self._newest: tuple[object, S3Store] | None = None

    def common(self) -> CloudOptions:
        return self._settings.common

    def client(self) -> S3Store:
        """The store for one request."""
        with self._lock:
            credentials = self._credentials()
            if self._newest is None or self._newest[0] != credentials:
                self._newest = credentials, self._store(credentials)
            return self._newest[1]

    @cached_property
    def _settings(self) -> _Settings:
        common, rest = cloud_options(self._url, self._options, cloud_names=_OWN)
        if common.ca_file is None:
            common = replace(common, ca_file=os.environ.get("AWS_CA_BUNDLE") or None)
        static = {
            name: str(value)
            for option, name in _CREDENTIALS.items()
            if (value := rest.get(option)) is not None
        }
        return _Settings(
            common,
            static,
            anonymous=bool(rest.get("anon")),
            profile=rest.get("profile"),
            region=rest.get("region"),
        )

    @cached_property
    def _session(self) -> Session:
        return Session(profile=self._settings.profile)

    @cached_property
    def _session_credentials(self) -> Any:
        return self._session.get_credentials()

    def _credentials(self) -> Mapping[str, str]:
        settings = self._settings
        if settings.anonymous or settings.static:
            return settings.static
        try:
            session_credentials = self._session_credentials
            frozen = session_credentials and session_credentials.get_frozen_credentials()
        except (boto.CredentialRetrievalError, boto.PartialCredentialsError) as error:
            raise errors.access_denied(f"store {self._url}", str(error)) from error
        except boto.BotoCoreError as error:
            raise errors.wrong_settings(self._url, str(error)) from error
        if not frozen:
            raise errors.access_denied(f"store {self._url}", "Unable to locate credentials")
        keys = {"access_key_id": frozen.access_key, "secret_access_key": frozen.secret_key}
        return keys | ({"token": frozen.token} if frozen.token else {})

    def _store(self, credentials: Mapping[str, str]) -> S3Store:
        settings, common = self._settings, self._settings.common
        provided: Any = {"token": None, "expires_at": None, **credentials}
        config: Any = {
            **self._address(),
            "skip_signature": settings.anonymous,
            "disable_bulk_delete": True,
            "conditional_put": "etag",
            # Buckets with Object Lock refuse a write without one; the signature needs it anyway.
            "checksum_algorithm": "SHA256",
        }
        if common.server_side_encryption or common.kms_key:
            config["server_side_encryption"] = common.server_side_encryption or "aws:kms"
        if common.kms_key:
            config["sse_kms_key_id"] = common.kms_key
        if self._bucket.endswith(_EXPRESS):
            config["s3_express"] = True
        if common.request_payer:
            config["request_payer"] = True
        try:
            return S3Store(
                self._bucket,
                config=config,
                # As settings they would be mixed with those of the environment.
                credential_provider=(lambda: provided) if credentials else None,
                client_options=client_options(self._url, common),
                retry_config=NO_RETRIES,
            )
        except TidelogError:
            raise
        except Exception as error:
            raise errors.wrong_settings(self._url, str(error).partition("\n")[0]) from error

    def _address(self) -> dict[str, Any]:
        try:
            profile = {} if self._settings.static else self._session.get_scoped_config()
            region = self._session.get_config_variable("region")
        except boto.BotoCoreError as error:
            raise errors.wrong_settings(self._url, str(error)) from error
        environ, common = os.environ, self._settings.common
        region = self._settings.region or region or environ.get("AWS_REGION") or _DEFAULT_REGION
        endpoint = (
            common.endpoint_url
            or environ.get("AWS_ENDPOINT_URL_S3")
            or environ.get("AWS_ENDPOINT_URL")
            or profile.get("endpoint_url")
        )
        # As AWS's own clients: the bucket is in the host of Amazon's addresses, where it can be.
        in_host = endpoint is None and "." not in self._bucket
        in_host = in_host if common.path_style is None else not common.path_style
        address = {"region": region, "virtual_hosted_style_request": in_host}
        if endpoint is None:
            return address
        endpoint = checked_endpoint(self._url, endpoint)
        if in_host:
            scheme, _, host = endpoint.partition("://")
            endpoint = f"{scheme}://{self._bucket}.{host}"
        return {**address, "endpoint": endpoint}
