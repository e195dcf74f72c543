"""How a store is reached besides its URL: what a command, an executor or a worker is told.

Invariant: it holds no secret, only where secrets are found; so it can be pickled and shown.
"""

from typing import Any, Final

import msgspec

from tidelog.effects import Effects
from tidelog.storage.open import open_store
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry_policy import RetryPolicy


class StoreAccess(msgspec.Struct, frozen=True):
    """The options of commands that open stores."""

    endpoint: str | None = None
    """S3 endpoint; None: that of AWS, or what the environment says."""
    encryption_key: str | None = None
    """Where the key of an encrypted store comes from; None: the store is not encrypted."""

    def open(
        self,
        url: str,
        effects: Effects,
        *,
        policy: RetryPolicy | None = None,
        log_url: str | None = None,
    ) -> ObjectStore:
        """The store at a URL, a new one with its log at `log_url`; raises ConfigError."""
        options: dict[str, Any] = {}
        if self.endpoint is not None:
            options["endpoint_url"] = self.endpoint
        return open_store(
            url,
            effects,
            policy=policy,
            options=options,
            log_url=log_url,
            encryption_key=self.encryption_key,
        )


PLAIN: Final = StoreAccess()
"""What a local store that is not encrypted needs: nothing."""
