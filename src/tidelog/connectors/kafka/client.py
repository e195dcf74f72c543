"""Clients of a Kafka cluster: their settings, their errors as ours, librdkafka's log in ours; and
what becomes of messages that cannot be handled.

Invariants: only errors of `tidelog.errors` leave, and neither they nor the log show a secret; what
tidelog relies on cannot be set otherwise.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal

from tidelog.connectors.tested import note_version
from tidelog.credentials import hide
from tidelog.errors import (
    AccessDeniedError,
    ConfigError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreUnreachableError,
    TidelogError,
    optional_library,
    require,
)
from tidelog.events import Event

logger = logging.getLogger(__name__)

_SECRET_TEXT: Final = re.compile(r".*(passphrase|[.]pem)")
"""Settings beside those that `credentials` knows by their names."""

_OURS: Final = ("bootstrap.servers", "metadata.broker.list", "log_cb", "logger")


def library() -> Any:
    """The package confluent_kafka with its `admin`; raises ConfigError when it is missing."""
    with optional_library("a source or sink of Kafka", "the library confluent-kafka", "kafka"):
        import_module("confluent_kafka.admin")
        return import_module("confluent_kafka")


BY_HAND: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
"""Settings of consumers whose partitions and offsets are given to them."""


class Cluster:
    """A Kafka cluster and how to connect to it.

    `bootstrap` is `host:port`, several of them separated by commas or a sequence. `settings` are
    librdkafka's and go to every client; values that are secret are masked from now on. Raises
    ConfigError, also for settings in `fixed`, which maps names to what to use instead.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        settings: Mapping[str, Any] | None = None,
        fixed: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        hide(self._settings)
        hide({f"secret.{n}": value for n, value in self._settings.items() if _SECRET_TEXT.match(n)})
        instead = {**dict.fromkeys(_OURS[:2], "bootstrap="), **dict.fromkeys(_OURS[2:], "logging")}
        instead.update(fixed or {})
        for name in self._settings.keys() & instead.keys():
            raise ConfigError(
                f"setting {name!r} of a Kafka client",
                expected="that tidelog sets it",
                found="it in client=",
                action=f"leave it out and use {instead[name]}",
            )
        self.bootstrap = _bootstrap(bootstrap)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of librdkafka that the user has set."""
        return self._settings

    def __str__(self) -> str:
        return f"Kafka at {self.bootstrap}"

    def consumer(self, settings: Mapping[str, Any]) -> Any:
        """A consumer with these settings; those of the cluster go before what is no `fixed` one.

        Raises ConfigError.
        """
        return self._client(library().Consumer, settings)

    def producer(self, settings: Mapping[str, Any]) -> Any:
        """A producer, as `consumer`."""
        return self._client(library().Producer, settings)

    def admin(self, settings: Mapping[str, Any]) -> Any:
        """A client that looks at topics and changes them. Raises ConfigError."""
        return self._client(library().admin.AdminClient, settings)

    def _client(self, kind: Any, settings: Mapping[str, Any]) -> Any:
        note_version("confluent-kafka")
        try:
            return kind(
                {"bootstrap.servers": self.bootstrap, **settings, **self._settings},
                logger=_LibraryLog(),
            )
        except (library().KafkaException, TypeError, ValueError) as error:
            kafkas = isinstance(error, library().KafkaException)
            raise ConfigError(
                f"the settings of a client of {self}",
                expected="settings of librdkafka, with values that it takes",
                found=error.args[0].str() if kafkas else str(error),
                action="correct client=; librdkafka's CONFIGURATION.md lists the settings",
            ) from error


def is_of_group(error: Any) -> bool:
    """Whether a poll says that the user has no right to the consumer's group: partitions are given
    to it and offsets are not read from it, so it needs none.
    """
    return bool(error.code() == library().KafkaError.GROUP_AUTHORIZATION_FAILED)


@contextmanager
def failures(what: str, cluster: Cluster) -> Iterator[None]:
    """Translate errors of the library; `what` names topic, partition and offset where known."""
    try:
        yield
    except library().KafkaException as error:
        raise translated(error.args[0], what, cluster) from error


def translated(
    error: Any, what: str, cluster: Cluster, *, action: str | None = None, retry_safe: bool = True
) -> TidelogError:
    """A KafkaError as ours; `action` takes the place of the usual advice."""
    name = str(error.name())
    kind, advice = _KINDS.get(name, (StorageError, "see Kafka's description of this error"))
    return kind(
        f"{what} in {cluster}" if what else str(cluster),
        found=f"{error.str()} ({name})",
        action=action or advice,
        retry_safe=retry_safe,
    )


_AWAY: Final = (
    StoreUnreachableError,
    "check that the brokers run, that this address and those that they advertise can be reached "
    "from here, and security.protocol",
)
_DENIED: Final = (
    AccessDeniedError,
    "check the credentials in client=, or let the user have the permission",
)
_NO_TOPIC: Final = (ObjectNotFoundError, "create the topic, or correct its name")
_NO_PARTITION: Final = (
    ObjectNotFoundError,
    "give the topic more partitions, or correct the number of the partition",
)
_TOO_LARGE: Final = (
    StorageError,
    "raise message.max.bytes in client= and max.message.bytes of the topic, or write less",
)
_REPLICAS: Final = (StoreUnreachableError, "bring back brokers with replicas of the partition")

_KINDS: Final[dict[str, tuple[type[TidelogError], str]]] = {
    **dict.fromkeys(
        (
            *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_WAIT_COORD"),
            *("_MSG_TIMED_OUT", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "BROKER_NOT_AVAILABLE"),
            *("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "COORDINATOR_NOT_AVAILABLE"),
            *("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "_RESOLVE"),
            # A broker that has just started, or a leader that has just moved.
            *("UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE"),
            *("REPLICA_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR", "UNKNOWN_TOPIC_ID", "_WAIT_CACHE"),
        ),
        _AWAY,
    ),
    **dict.fromkeys(
        (
            *("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"),
            *("GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"),
            *("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "_SSL", "UNSUPPORTED_SASL_MECHANISM"),
        ),
        _DENIED,
    ),
    **dict.fromkeys(("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"), _NO_TOPIC),
    "_UNKNOWN_PARTITION": _NO_PARTITION,
    **dict.fromkeys(("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"), _TOO_LARGE),
    **dict.fromkeys(("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"), _REPLICAS),
    "TOPIC_ALREADY_EXISTS": (ObjectExistsError, "choose another name, or delete the topic"),
    "_CONFLICT": (
        ConfigError,
        "make a KafkaSource for each job.source(...), or use the stream of one twice: an object "
        "reads a partition once",
    ),
    "INVALID_TRANSACTION_TIMEOUT": (
        ConfigError,
        "raise transaction.max.timeout.ms of the brokers, to 60000 at least; or give the sink a "
        "lower transaction.timeout.ms in client=",
    ),
}
"""Error class and advice by the name of librdkafka's error."""


def _bootstrap(bootstrap: str | Sequence[str]) -> str:
    """The addresses as librdkafka takes them."""
    # None: an option that was not given.
    servers = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap or ())
    stripped = [*map(str.strip, map(str, servers))]
    if stripped and all(_SERVER.fullmatch(server) for server in stripped):
        return ",".join(stripped)
    raise ConfigError(
        "bootstrap",
        expected="addresses of brokers, such as 'broker-1:9092,broker-2:9092'",
        found=repr(bootstrap),
        action="correct it; user and password belong into client=",
    )


_SERVER: Final = re.compile(r"([A-Za-z_]+://)?(\[[0-9A-Fa-f:.%]+\]|[\w.-]+)(:\d{1,5})?")


class _LibraryLog:
    """Takes librdkafka's log lines, which come with Python's levels, from polls of the client."""

    def log(self, level: int, message: str, *args: object) -> None:
        text = message % args
        if level >= logging.WARNING:
            Event.KAFKA_CLIENT_WARNED.log(logger, message=text)
        else:
            Event.KAFKA_CLIENT_SAID.log(logger, message=text)


@dataclass(frozen=True)
class DeadLetterTopic:
    """Messages that cannot be handled go to this topic of the same cluster, as they are, with
    headers that say where from and why.
    """

    topic: str

    def __post_init__(self) -> None:
        """Raises ConfigError for a topic that is none."""
        is_name = isinstance(self.topic, str) and bool(self.topic)
        require("topic of a DeadLetterTopic", repr(self.topic), is_name, "a name")


def letter_headers(
    headers: Iterable[tuple[str, Any]] | None, topic: str, partition: int, **more: str
) -> list[tuple[str, Any]]:
    """The message's own headers, then `tidelog.NAME` for its topic, its partition and `more`."""
    details = {"topic": topic, "partition": str(partition)} | more
    return [
        *(headers or ()),
        *((f"tidelog.{name}", text.encode()) for name, text in details.items()),
    ]


OnError = Literal["fail", "skip"] | DeadLetterTopic


def check_policy(option: str, policy: OnError) -> None:
    """Raises ConfigError for what is none."""
    is_policy = policy in ("fail", "skip") or isinstance(policy, DeadLetterTopic)
    require(option, repr(policy), is_policy, "'fail', 'skip' or DeadLetterTopic('name')")
