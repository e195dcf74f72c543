"""What becomes of messages that cannot be handled: the job fails, they are left out, or kept."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tidelog.errors import ConfigError


@dataclass(frozen=True)
class DeadLetterTopic:
    """Messages that cannot be handled go to this topic of the same cluster, as they are, with
    headers that say where from and why.
    """

    topic: str


def letter_headers(
    headers: Iterable[tuple[str, Any]] | None, topic: str, partition: int, **more: str
) -> list[tuple[str, Any]]:
    """The message's own headers, then `tidelog.NAME` for its topic, its partition and `more`."""
    said = {"topic": topic, "partition": str(partition)} | more
    return [*(headers or ()), *((f"tidelog.{name}", text.encode()) for name, text in said.items())]


OnError = Literal["fail", "skip"] | DeadLetterTopic


def check_policy(option: str, policy: OnError) -> None:
    """Raises ConfigError for what is none."""
    if policy not in ("fail", "skip") and not isinstance(policy, DeadLetterTopic):
        raise ConfigError(
            option,
            expected="'fail', 'skip' or DeadLetterTopic('name')",
            found=repr(policy),
            action="pass one of them",
        )
