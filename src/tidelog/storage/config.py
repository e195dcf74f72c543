"""How stores are reached, as a job sets it."""

import os
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from tidelog.options.declaration import check_options, option
from tidelog.options.kinds import Choice

S3Client = Literal["obstore", "s3fs"]

_CLIENT: Final = "TIDELOG__STORAGE__S3__CLIENT"
"""The variable of the job's option, without importing what reads all of them."""


@dataclass(frozen=True, slots=True)
class S3Config:
    """How buckets of S3 are reached; raises ConfigError for values that cannot work."""

    client: S3Client = option(
        "obstore",
        Choice(get_args(S3Client)),
        "The library that sends requests to `s3://`: obstore, or s3fs with fsspec's configuration.",
        when="s3fs where roles, proxies and endpoints are set up for it; it takes several times "
        "the processor time of obstore.",
    )

    def __post_init__(self) -> None:
        check_options(self, "storage.s3.")


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """How stores are reached."""

    s3: S3Config = field(default_factory=S3Config)

    def __post_init__(self) -> None:
        check_options(self, "storage.")


def s3_config_of_environment() -> S3Config:
    """What the environment says, else the defaults; raises ConfigError for another library."""
    name: Any = os.environ.get(_CLIENT)
    return S3Config() if name is None else S3Config(client=name)
