"""What a query has taken over from a job, kept in the query's checkpoint.

Invariants: it is written before the first batch is planned, and not changed after that batch is
committed; from then on the query needs nothing of the job's store.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.errors import ConfigError, ObjectNotFoundError, RestoreError
from tidelog.ids import CheckpointId, Generation, Slot
from tidelog.spark.checkpoint.checkpoint import COMMITS, store_url
from tidelog.spark.handover.sources import QuerySources
from tidelog.spark.source.parts import ReadSession, connected
from tidelog.storage.document import FORMAT_VERSION, open_document, seal_document
from tidelog.storage.open import PLAIN, StoreAccess

NAME: Final = "tidelog-handover.json"
SOURCES_NAME: Final = "tidelog-sources.json"
RETURN_NAME: Final = "tidelog-return.json"

T = TypeVar("T")


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
    checkpoint_id: CheckpointId = CheckpointId(0)
    """Of the checkpoint: what the query's batches are called for the job's sinks is above it."""
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


class Return(msgspec.Struct, frozen=True):
    """Where a query's job is, when it runs embedded again."""

    savepoint: str
    format: int = FORMAT_VERSION


class QueryDirectory:
    """The checkpoint of a query as far as a handover needs it; `location` is as Spark has it."""

    def __init__(self, location: str, access: StoreAccess = PLAIN) -> None:
        self.url = store_url(location)
        # A checkpoint of Spark's is never encrypted by us.
        self._access = StoreAccess(access.endpoint)

    def has_batch(self) -> bool:
        """Whether a batch of the query is committed: the initial state is in its own state."""
        with connected(self.url, self._access) as session:
            return session.run(_has_commits(session))

    def read(self) -> Handover:
        """What the query took over; raises ConfigError where it began without."""
        handover = self.read_if_any()
        if handover is None:
            raise ConfigError(
                f"checkpoint {self.url}",
                expected=f"{NAME}, as of a query that began with state of a job",
                found="a query that began without",
                action="leave the savepoint out, or begin with a new checkpoint directory",
            )
        return handover

    def read_if_any(self) -> Handover | None:
        """What the query took over; None: it began without."""
        return self._document(NAME, Handover)

    def write(self, handover: Handover) -> None:
        """Keep what the query takes over with its first batch."""
        self._put(NAME, handover)

    def sources(self) -> QuerySources:
        """The sources of the query's job; raises ConfigError for the query of no job."""
        sources = self._document(SOURCES_NAME, QuerySources)
        if sources is None:
            raise ConfigError(
                f"checkpoint {self.url}",
                expected="that of a job, as `tidelog spark run` starts it",
                found="one without a description of the job's sources",
                action="name the checkpoint directory of such a query",
            )
        return sources

    def begin(self, sources: QuerySources) -> None:
        """Keep what the sources of a query are that starts.

        Raises RestoreError for one whose job runs embedded again.
        """
        returned = self._document(RETURN_NAME, Return)
        if returned is not None:
            raise RestoreError(
                f"query at {self.url}",
                expected="the job here",
                found=f"that it went back to savepoint {returned.savepoint}",
                action="let the job run there; to bring it to Spark again, stop it by a savepoint, "
                "and begin with that in a new checkpoint directory; if that savepoint was never "
                f"completed, repeat `tidelog spark savepoint`, or remove {RETURN_NAME} from the "
                "checkpoint to let the query go on",
                retry_safe=False,
            )
        self._put(SOURCES_NAME, sources)

    def move_to(self, savepoint: str) -> None:
        """Start the query no more: its job is at a savepoint."""
        self._put(RETURN_NAME, Return(savepoint))

    def _document(self, name: str, kind: type[T]) -> T | None:
        with connected(self.url, self._access) as session:
            try:
                data = session.run(session.store.get(name))
            except ObjectNotFoundError:
                return None
        return open_document(data, name, kind)

    def _put(self, name: str, document: msgspec.Struct) -> None:
        with connected(self.url, self._access) as session:
            session.run(session.store.put(name, seal_document(document)))


async def _has_commits(session: ReadSession) -> bool:
    async for info in session.store.list(COMMITS):
        if info.name.removeprefix(COMMITS).isdecimal():
            return True
    return False
