"""What becomes of messages that cannot be handled: the job fails, they are left out, or kept."""

from dataclasses import dataclass
from typing import Literal

from tidelog.errors import ConfigError


@dataclass(frozen=True)
class DeadLetterTopic:
    """Messages that cannot be handled go to this topic of the same cluster, as they are, with
    headers that say where from and why.
    """

    topic: str


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
