"""What a query has taken over from a job, kept in the query's checkpoint.

Invariants: it is written before the first batch is planned, and not changed after that batch is
committed; from then on the query needs nothing of the job's store.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.errors import ConfigError, ObjectNotFoundError
from tidelog.ids import Generation, Slot
from tidelog.spark.checkpoint.checkpoint import COMMITS, store_url
from tidelog.spark.source.parts import ReadSession, connected
from tidelog.storage.document import FORMAT_VERSION, open_document, seal_document
from tidelog.storage.open import PLAIN, StoreAccess

NAME: Final = "tidelog-handover.json"


class Handover(msgspec.Struct, frozen=True):
    """The checkpoint that a query began with, without its rows."""

    store: str
    """URL of the job's store."""
    checkpoint: Slot
    job: str
    operators: tuple[OperatorState, ...]
    """Their states, key groups and watermarks; where their rows are stored is left out."""
    splits: Mapping[str, Mapping[str, bytes]] = {}
    """By source what was stored of each split, encoded."""
    generation: Generation | None = None
    """The start that the query is for the job's sinks; None: the job itself may go on."""
    format: int = FORMAT_VERSION

    def operator(self, name: str) -> OperatorState:
        """The operator of a name; raises ConfigError where the job had none."""
        for operator in self.operators:
            if operator.id == name:
                return operator
        raise self._none(f"operator {name!r}", [operator.id for operator in self.operators])

    def stored_splits(self, source: str) -> Mapping[str, bytes]:
        """What is stored of each split of a source; raises ConfigError where the job had none."""
        if source not in self.splits:
            raise self._none(f"source {source!r}", self.splits)
        return self.splits[source]

    def _none(self, what: str, names: Iterable[str]) -> ConfigError:
        return ConfigError(
            what,
            expected=f"one that checkpoint {self.checkpoint} of {self.store} has: "
            f"{', '.join(sorted(map(repr, names)))}",
            found="none of that name",
            action="name one of them",
        )


def without_rows(operator: OperatorState) -> OperatorState:
    """The operator without references to stored rows."""
    subtasks = tuple(
        SubtaskState(
            subtask.index,
            subtask.first_key_group,
            subtask.last_key_group,
            subtask.seqno,
            subtask.table,
            start=subtask.seqno,
            watermark=subtask.watermark,
            advancing=subtask.advancing,
            ahead=subtask.ahead,
            finished=subtask.finished,
        )
        for subtask in operator.subtasks
    )
    return msgspec.structs.replace(operator, subtasks=subtasks)


class QueryDirectory:
    """The checkpoint of a query as far as a handover needs it; `location` is as Spark has it."""

    def __init__(self, location: str, access: StoreAccess = PLAIN) -> None:
        self.url = store_url(location)
        self._access = access

    def has_batch(self) -> bool:
        """Whether a batch of the query is committed: the initial state is in its own state."""
        with connected(self.url, self._access) as session:
            return session.run(_has_commits(session))

    def read(self) -> Handover:
        """What the query took over; raises ConfigError where it began without."""
        with connected(self.url, self._access) as session:
            try:
                data = session.run(session.store.get(NAME))
            except ObjectNotFoundError as error:
                raise ConfigError(
                    f"checkpoint {self.url}",
                    expected=f"{NAME}, as of a query that began with state of a job",
                    found="a query that began without",
                    action="leave initial_state out, or begin with a new checkpoint directory",
                ) from error
        return open_document(data, NAME, Handover)

    def write(self, handover: Handover) -> None:
        """Keep what the query takes over with its first batch."""
        with connected(self.url, self._access) as session:
            session.run(session.store.put(NAME, seal_document(handover)))


async def _has_commits(session: ReadSession) -> bool:
    async for info in session.store.list(COMMITS):
        if info.name.removeprefix(COMMITS).isdecimal():
            return True
    return False
