"""What can be set of a store in a cloud, by one name for all clouds.

Invariant: an option that was given and that the cloud does not have is refused, never ignored.

Each is an option of `open_store(options=)`, or a variable of the environment with its name in
capitals after TIDELOG_STORE_: TIDELOG_STORE_STORAGE_CLASS. An option wins over a variable.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tidelog.errors import ConfigError, UnavailableError
from tidelog.options.kinds import Flag, Integer, Range
from tidelog.storage import errors

_VARIABLE: Final = "TIDELOG_STORE_"
_OF_A_SERVICE: Final = re.compile(rf"{_VARIABLE}(SERVICE_HOST|SERVICE_PORT|PORT)")
"""What Kubernetes sets for a service that is called tidelog-store."""
_MULTIPART: Final = 64 * 2**20
_KINDS: Final[Mapping[str, Flag | Integer]] = {
    "path_style": Flag(),
    "multipart_above": Integer(Range(0)),
}


@dataclass(frozen=True, slots=True)
class CloudOptions:
    """The options that clouds have in common."""

    endpoint_url: str | None = None
    """Where requests go instead of to the cloud's own address."""
    storage_class: str | None = None
    """The class that objects are written in, as the cloud calls it."""
    server_side_encryption: str | None = None
    """How the cloud encrypts objects at rest: `AES256`, `aws:kms` or `aws:kms:dsse` of S3."""
    kms_key: str | None = None
    """The key of the cloud's key service that objects are encrypted with."""
    request_payer: str | None = None
    """Who pays: `requester` in S3, a project in Google Cloud."""
    ca_file: str | None = None
    """A file of certificates (PEM) to trust beside the system's."""
    proxy: str | None = None
    """The URL of a proxy that requests go through."""
    path_style: bool | None = None
    """Whether S3's bucket is in the path of a URL rather than in its host."""
    multipart_above: int = _MULTIPART
    """Objects of more bytes are written in parts."""

    def certificates(self, url: str) -> bytes | None:
        """What is in `ca_file`; raises ConfigError where it cannot be read."""
        if self.ca_file is None:
            return None
        try:
            return Path(self.ca_file).read_bytes()
        except OSError as error:
            raise UnavailableError(
                f"certificates of {url}",
                expected="a file of certificates in PEM",
                found=f"{self.ca_file}: {error.strerror}",
                action="correct ca_file",
            ) from error


def bucket_and_prefix(url: str, kind: str = "bucket") -> tuple[str, str]:
    """The host part of a cloud's URL, and the path below it without slashes around it.

    Raises ConfigError for a URL without the bucket, which the cloud calls `kind`, or with something
    after the path, which would be left out.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise ConfigError(
            f"store URL {url!r}",
            expected=f"{parts.scheme}://{kind}/prefix and nothing after it",
            found="a ? or #, which ends the path of a URL",
            action="choose a prefix without it",
        )
    if not parts.netloc.partition("@")[0]:
        raise ConfigError(
            f"store URL {url!r}",
            expected=f"{parts.scheme}://{kind} or {parts.scheme}://{kind}/prefix",
            found=f"no {kind}",
            action=f"name the {kind}",
        )
    return parts.netloc, parts.path.strip("/")


_NAMES: Final = frozenset(field.name for field in fields(CloudOptions))


def cloud_options(
    url: str,
    options: Mapping[str, Any],
    *,
    cloud_names: frozenset[str] | None,
    without: frozenset[str] = frozenset(),
) -> tuple[CloudOptions, dict[str, Any]]:
    """The common options of the store at `url`, and the given ones of this cloud alone, which are
    called `cloud_names`; None: its library checks their names.

    Raises ConfigError for one of `without`, those that this cloud does not have, for another one
    that nobody knows, and for a variable of the environment that is none.
    """
    variables = {
        variable.removeprefix(_VARIABLE).lower(): value
        for variable, value in os.environ.items()
        if variable.startswith(_VARIABLE) and not _OF_A_SERVICE.match(variable)
    }
    if wrong := sorted(variables.keys() - _NAMES):
        names = ", ".join(_VARIABLE + name.upper() for name in wrong)
        raise errors.wrong_settings(url, f"unknown variables of the environment: {names}")
    values: dict[str, Any] = {name: value for name, value in variables.items() if value}
    values |= {name: value for name, value in options.items() if name in _NAMES}
    if wrong := sorted(without & values.keys()):
        raise errors.wrong_settings(url, f"{', '.join(wrong)}, which this cloud does not have")
    for name, kind in _KINDS.items():
        if name in values:
            try:
                values[name] = kind.read(values[name])
            except ValueError as error:
                problem = f"{name} {error} where {kind.expected} was expected"
                raise errors.wrong_settings(url, problem) from error
    others = {name: value for name, value in options.items() if name not in _NAMES}
    if cloud_names is not None and (wrong := sorted(others.keys() - cloud_names)):
        raise errors.wrong_settings(url, f"unknown options: {', '.join(wrong)}")
    return CloudOptions(**values), others


def checked_endpoint(url: str, endpoint: str) -> str:
    """The endpoint without a slash at its end; raises ConfigError for what is no URL."""
    if endpoint.startswith(("http://", "https://")) and endpoint.partition("://")[2].strip("/"):
        return endpoint.rstrip("/")
    raise errors.wrong_settings(url, f"the endpoint {endpoint!r}, without http:// or https://")
