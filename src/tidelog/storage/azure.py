"""An object store in a container of Azure Blob Storage."""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from obstore.store import AzureStore

from tidelog.storage import errors
from tidelog.storage.cloud_options import (
    CloudOptions,
    bucket_and_prefix,
    checked_endpoint,
    cloud_options,
)
from tidelog.storage.obstore_store import NO_RETRIES, ObstoreStore, client_options

_WITHOUT: Final = frozenset({"server_side_encryption", "kms_key", "request_payer", "path_style"})
_NAMES: Final[Mapping[str, str]] = {
    "account_name": "account_name",
    "account_key": "account_key",
    "sas_token": "sas_key",
    "tenant_id": "tenant_id",
    "client_id": "client_id",
    "client_secret": "client_secret",
    "anon": "skip_signature",
    "use_azure_cli": "use_azure_cli",
}
"""What adlfs calls an option, and what the library calls it."""
_OWN: Final = frozenset({*_NAMES, "connection_string", "encryption_scope"})
_CONNECTION: Final[Mapping[str, str]] = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_key",
    "BlobEndpoint": "endpoint",
}


def open_azure_store(url: str, options: Mapping[str, Any]) -> ObstoreStore:
    """The store of `az://container/prefix` or `abfs://container@account.dfs.core.windows.net/prefix`.

    `options` are those of docs/guides/object-stores.md. Without `account_name` and a credential
    among them the AZURE_STORAGE_* variables hold, then the identity of the machine. Raises
    ConfigError for a URL without a container.
    """
    authority, prefix = bucket_and_prefix(url, "container")
    container, _, host = authority.partition("@")
    root = f"{url.partition('://')[0]}://{authority}/{prefix}".rstrip("/")
    connection = _Connection(root, container, host.partition(".")[0], options)
    return ObstoreStore(root, prefix, lambda: connection.client, connection.common)


class _Connection:
    """The library's store for a container."""

    def __init__(self, url: str, container: str, account: str, options: Mapping[str, Any]) -> None:
        self._url = url
        self._container = container
        self._account = account
        self._options = options

    def common(self) -> CloudOptions:
        return self._settings[0]

    @cached_property
    def client(self) -> AzureStore:
        """The store for all requests; raises ConfigError for options that cannot work."""
        common, config = self._settings
        scope = self._options.get("encryption_scope")
        headers = {"x-ms-encryption-scope": str(scope)} if scope else {}
        try:
            return AzureStore(
                self._container,
                config=config,
                client_options=client_options(self._url, common, headers=headers),
                retry_config=NO_RETRIES,
            )
        except Exception as error:
            raise errors.wrong_settings(self._url, str(error).partition("\n")[0]) from error

    @cached_property
    def _settings(self) -> tuple[CloudOptions, Any]:
        common, rest = cloud_options(self._url, self._options, cloud_names=_OWN, without=_WITHOUT)
        rest.pop("encryption_scope", None)
        text = rest.pop("connection_string", None)
        if text is None and not rest:
            text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
        parts = dict(part.partition("=")[::2] for part in (text or "").split(";") if part)
        config = {name: parts[key] for key, name in _CONNECTION.items() if key in parts}
        if self._account:
            config["account_name"] = self._account
        config |= {_NAMES[name]: value for name, value in rest.items()}
        if common.endpoint_url:
            config["endpoint"] = common.endpoint_url
        if "endpoint" in config:
            config["endpoint"] = checked_endpoint(self._url, config["endpoint"])
        return common, config
