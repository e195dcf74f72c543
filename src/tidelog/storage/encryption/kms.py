"""Key-encryption keys that never leave the key management service of AWS.

Invariants: the service is asked once when a store is opened, once for each key when it is made or
rotated, and never for an object. The context is bound by the service's encryption context, so its
audit log names the store.
"""

import re
from functools import cached_property
from typing import Any, Final

from botocore import exceptions
from botocore.session import Session

from tidelog.effects import Effects
from tidelog.errors import AccessDeniedError, ConfigError, StoreUnreachableError
from tidelog.storage.encryption.keys import KeySource, Wrapped

_PREFIX: Final = "aws-kms:"
_ARN: Final = re.compile(r"arn:[^:]*:kms:[^:]*:[^:]*:key/.+")
_CONTEXT: Final = "tidelog"
_OF_ANOTHER_KEY: Final = frozenset({"IncorrectKeyException", "InvalidCiphertextException"})
_NO_SUCH_KEY: Final = frozenset(
    {
        *("NotFoundException", "DisabledException", "InvalidArnException", "ValidationException"),
        *("KMSInvalidStateException", "InvalidKeyUsageException"),
    }
)
_DENIED: Final = frozenset(
    {
        *("AccessDeniedException", "ExpiredTokenException", "UnrecognizedClientException"),
        *("InvalidSignatureException", "MissingAuthenticationToken", "InvalidClientTokenId"),
        *("IncompleteSignature", "RequestExpired"),
    }
)


def open_kms(key: str, effects: Effects) -> KeySource:
    """The key of an id, ARN or alias; raises ConfigError where none is named."""
    if not key:
        raise ConfigError(
            "encryption key aws-kms:",
            expected="aws-kms: and the id, the ARN or the alias of a key",
            found="no key",
            action="name one, such as aws-kms:alias/tidelog",
        )
    return AwsKms(key, Session(), effects)


class AwsKms:
    """One key of the service; credentials and region are AWS's usual ones.

    Both methods raise ConfigError for a key that does not exist or is disabled, AccessDeniedError,
    and StoreUnreachableError.
    """

    def __init__(self, key: str, session: Session, effects: Effects) -> None:
        self.label = f"encryption key {_PREFIX}{key}"
        self._key = key
        self._session = session
        self._effects = effects

    async def wrap(self, key: bytes, context: str) -> Wrapped:
        answer = await self._asked("encrypt", Plaintext=key, EncryptionContext={_CONTEXT: context})
        return Wrapped(_PREFIX + answer["KeyId"], answer["CiphertextBlob"])

    async def unwrap(self, wrapped: Wrapped, context: str) -> bytes | None:
        other = _ARN.fullmatch(self._key) is not None and wrapped.by != _PREFIX + self._key
        if other or not wrapped.by.startswith(_PREFIX):
            return None
        try:
            answer = await self._asked(
                "decrypt", CiphertextBlob=wrapped.data, EncryptionContext={_CONTEXT: context}
            )
        except _OtherKeyError:
            return None
        return bytes(answer["Plaintext"])

    async def _asked(self, operation: str, **arguments: Any) -> Any:
        return await self._effects.offload.run(self._ask, operation, arguments)

    def _ask(self, operation: str, arguments: dict[str, Any]) -> Any:
        try:
            return getattr(self._client, operation)(KeyId=self._key, **arguments)
        except exceptions.ClientError as cause:
            raise self._translated(cause) from cause
        except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as cause:
            raise self._denied(str(cause)) from cause
        except exceptions.NoRegionError as cause:
            raise ConfigError(
                self.label, expected="a region", found="none", action="set AWS_REGION"
            ) from cause
        except exceptions.BotoCoreError as cause:
            raise self._unreachable(str(cause)) from cause

    @cached_property
    def _client(self) -> Any:
        return self._session.create_client("kms")

    def _translated(self, error: Any) -> Exception:
        answer = error.response["Error"]
        code, message = answer["Code"], f"{answer['Code']}: {answer.get('Message', '')}"
        if code in _OF_ANOTHER_KEY:
            return _OtherKeyError(code)
        if code in _NO_SUCH_KEY:
            return ConfigError(
                self.label,
                expected="an enabled key for encryption in this account and region",
                found=message,
                action="correct the key or the region, or enable the key",
            )
        if code in _DENIED:
            return self._denied(message)
        return self._unreachable(message)

    def _unreachable(self, reason: str) -> StoreUnreachableError:
        action = "bring the service back, then start again"
        return StoreUnreachableError(self.label, found=reason, action=action)

    def _denied(self, reason: str) -> AccessDeniedError:
        return AccessDeniedError(
            self.label,
            expected="credentials that may use the key (kms:Encrypt, kms:Decrypt)",
            found=reason,
            action="give the job these permissions, or new credentials",
        )


class _OtherKeyError(Exception):
    """What is to be opened was wrapped with another key, or for another context."""
