"""A table of Iceberg as a sink commits to it.

Invariants: a commit adds files to the table and records the transaction in the table's properties,
in one change of its metadata, so that a transaction is never added twice, whatever snapshots have
expired; a commit is made on the very snapshot that was looked at, and every start moves the table
to a snapshot of its own when it records itself, so that nothing of an older start
happens after a newer one has begun.

Commits are the library's public transactions. That files are written without one is all that needs
a function it keeps to itself, `_dataframe_to_data_files`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeVar

from tidelog.connectors.iceberg.partitions import check_partitions, partition_columns
from tidelog.connectors.iceberg.staged import SinkDirectory, Staged, data_file, described, name_of
from tidelog.connectors.outside import bounded
from tidelog.connectors.tested import note_version
from tidelog.connectors.transactions import (
    CLONE,
    TransactionId,
    Writer,
    WriterStart,
    check_begins,
    check_there,
    fenced,
)
from tidelog.errors import (
    AccessDeniedError,
    RestoreError,
    StorageError,
    StoreUnreachableError,
    TidelogError,
    UnavailableError,
    optional_library,
)
from tidelog.runtime.sink import SinkContext
from tidelog.storage import errors

_ATTEMPTS: Final = 100
"""How often a commit is made that finds that another one was faster: somebody always gets on."""

T = TypeVar("T")
Catalog = str | Mapping[str, str]


class LakeTable:
    """One table; raises ConfigError, FencedError and StorageErrors."""

    def __init__(self, catalog: Catalog, name: str, sink: str, me: Writer, answer_s: float) -> None:
        self._answer_s = answer_s
        self.sink = sink
        self.me = me
        self.name = name
        self._properties = f"tidelog.{sink}."
        self._where = f"Iceberg table {name!r}"
        self._catalog = self._answer(partial(_catalog, catalog))
        try:
            table = self._answer(partial(self._catalog.load_table, name))
            with self._failures():
                self.schema = table.schema()
                self._uuid = table.metadata.table_uuid
                self.partitioned = partition_columns(table)
                self.directory = SinkDirectory(sink, table)
            check_partitions(table, self._where)
            self._take_over()
        except BaseException:
            self.close()
            raise

    def write(self, tx: TransactionId, data: Any) -> Staged:
        """Write data files that no snapshot has; `data` is a table of Arrow."""
        return self._answer(partial(self._written, self._load(), tx, data))

    def _written(self, table: Any, tx: TransactionId, data: Any) -> Staged:
        library = import_module("pyiceberg.io.pyarrow")
        properties = {
            **table.metadata.properties,
            "write.data.path": self.directory.data(tx),
            "write.object-storage.enabled": "false",
            "write.format.default": "parquet",
        }
        properties.pop("write.py-location-provider.impl", None)
        metadata = table.metadata.model_copy(update={"properties": properties})
        self.directory.announce(tx)
        files = list(library._dataframe_to_data_files(metadata, data, table.io))
        spec, schema = table.spec(), table.schema()
        return Staged(tx, self.name, spec.spec_id, tuple(described(f, spec, schema) for f in files))

    def commit(self, group: Sequence[Staged]) -> None:
        """Add the files of these transactions in one snapshot, but for those that have been."""

        def add(table: Any) -> bool:
            remaining = [staged for staged in group if not self.is_committed(table, staged.tx)]
            return not remaining or self._added(table, remaining)

        self._until_made(add)
        for staged in group:
            self._answer(partial(self.directory.settled, staged.tx))

    def check_files(self, staged: Staged) -> None:
        """Raises StorageError when a file is not what was written, RestoreError when the table
        never had its columns; those of a committed transaction may be gone.
        """
        table = self._load()
        if self.is_committed(table, staged.tx):
            return
        for file in staged.files:
            size = self._answer(partial(self.directory.size, file))
            if size != file.size:
                raise StorageError(
                    f"data file {file.path} of {staged.tx}",
                    expected=f"{file.size} bytes: a checkpoint names it",
                    found="nothing" if size is None else f"{size} bytes",
                    action="bring it back; its records are in no other file",
                    retry_safe=False,
                )
        read = partial(self.directory.schema, staged.files[0], table.format_version)
        columns = _columns(self._answer(read))
        with self._failures():
            table_columns: set[tuple[int, str]] = set()
            for schema in table.schemas().values():
                table_columns |= _columns(schema).items()
        if not columns.items() <= table_columns:
            raise RestoreError(
                str(staged.tx),
                expected=f"columns that {self._where} has or had",
                found=", ".join(columns.values()),
                action="bring back the table as it was, which may have been dropped and made "
                f"again; to write to this one, {CLONE}",
            )

    def remove_left_over(
        self, referenced: set[TransactionId], may_abort: Callable[[int, int], bool]
    ) -> None:
        """Remove the files of transactions that were not committed and that no checkpoint names,
        and what is recorded of commits that none asks for any more, of the generations and subtasks
        that may be aborted.
        """
        table = self._load()
        for tx in self._answer(self.directory.announced):
            if not may_abort(tx.generation, tx.subtask):
                continue
            if self.is_committed(table, tx):
                self._answer(partial(self.directory.settled, tx))
            elif tx not in referenced:
                self._answer(partial(self.directory.remove, tx))
        starts = {tx.start for tx in referenced}
        forgotten = [
            self._committed_by(start)
            for start in self._starts(table)
            if start not in starts and may_abort(start.generation, start.subtask)
        ]
        if forgotten:
            # Also if a newer start has begun meanwhile: it asks for no start that we do not know.
            self._until_made(lambda table: self._made(table.transaction(), removed=forgotten))

    def check_complete(self, settled: set[TransactionId]) -> None:
        """Raises ObjectNotFoundError where the table lacks some of these, which it had: what is
        announced still belongs to a checkpoint that the job went on without.
        """
        table, announced = self._load(), set(self._answer(self.directory.announced))
        check_there(
            tx for tx in settled if tx not in announced and not self.is_committed(table, tx)
        )

    def check_begins(self, context: SinkContext) -> None:
        """Raises ConfigError where a job begins and the table has files of an earlier one."""
        if not context.is_new_job:
            return
        committed = list(map(self._committed_by, self._starts(self._load())))
        forget = f"remove {committed} with `table.transaction().remove_properties(...)`"
        check_begins(context, self.sink, committed, forget)

    def _starts(self, table: Any) -> Iterator[WriterStart]:
        """The starts of the sink whose commits are recorded."""
        prefix = f"{self._properties}committed."
        for key in table.properties:
            if key.startswith(prefix):
                subtask, generation, attempt = key[len(prefix) :].split(".", 2)
                yield WriterStart(self.sink, int(subtask), int(generation), attempt)

    def is_committed(self, table: Any, tx: TransactionId) -> bool:
        """Whether the table has a transaction: those of one start are committed in order."""
        upto = table.properties.get(self._committed_by(tx.start))
        return upto is not None and int(upto) >= tx.checkpoint

    def close(self) -> None:
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()

    def _take_over(self) -> None:
        """Record our start in a snapshot that adds nothing."""

        def take(table: Any) -> bool:
            generation = str(self.me.generation)
            properties = {
                f"{self._properties}generation": generation,
                f"{self._properties}attempt": str(self.me.attempt),
            }
            is_recorded = self._recorded(table) == self.me
            return is_recorded or self._append(table, [], {"tidelog.start": generation}, properties)

        self._until_made(take)

    def _until_made(self, change: Callable[[Any], bool]) -> None:
        """Make a change of the table as it is now, again while other writers are faster."""
        for _ in range(_ATTEMPTS):
            table = self._load()
            self._check_newest(table)
            if change(table):
                return
        raise StorageError(
            self._where,
            expected="to commit to it",
            found=f"that another writer was faster {_ATTEMPTS} times",
            action="let other writers commit less often, then start again",
        )

    def _added(self, table: Any, group: Sequence[Staged]) -> bool:
        spec, schema = table.spec(), table.schema()
        for staged in group:
            if staged.spec != spec.spec_id or staged.table != self.name:
                raise RestoreError(
                    str(staged.tx),
                    expected=f"table {self.name!r} with the partition spec {spec.spec_id}",
                    found=f"{staged.table!r} with the partition spec {staged.spec}",
                    action="go back to the table and spec as they were, start the job, stop it "
                    "with a savepoint, which commits this, and then change them",
                )
        files: list[Any] = []
        committed: dict[str, str] = {}
        for staged in sorted(group, key=lambda staged: staged.tx.checkpoint):
            files += [data_file(file, spec, schema) for file in staged.files]
            committed[self._committed_by(staged.tx.start)] = str(staged.tx.checkpoint)
        names = ",".join(name_of(staged.tx) for staged in group)
        return self._append(table, files, {"tidelog.transactions": names}, committed)

    def _append(
        self, table: Any, files: Sequence[Any], summary: dict[str, str], properties: dict[str, str]
    ) -> bool:
        def appended() -> Any:
            transaction = table.transaction()
            snapshot = transaction.update_snapshot({"tidelog.sink": self.sink, **summary})
            merges = table.properties.get("commit.manifest-merge.enabled", "false") == "true"
            with snapshot.merge_append() if merges else snapshot.fast_append() as producer:
                for file in files:
                    producer.append_data_file(file)
            return transaction

        return self._made(self._answer(appended), added=properties)

    def _made(
        self, transaction: Any, *, added: Mapping[str, str] = {}, removed: Sequence[str] = ()
    ) -> bool:
        """Commit, with changes of properties; False when the table is not as it was loaded."""

        def committed() -> bool:
            if added:
                transaction.set_properties(dict(added))
            if removed:
                transaction.remove_properties(*removed)
            try:
                transaction.commit_transaction()
            except import_module("pyiceberg.exceptions").CommitFailedException:
                return False
            return True

        return self._answer(committed)

    def _load(self) -> Any:
        table = self._answer(partial(self._catalog.load_table, self.name))
        with self._failures():
            if table.metadata.table_uuid != self._uuid:
                raise UnavailableError(
                    self._where,
                    expected="the table that was there when the job began",
                    found="another one by its name",
                    action="start the job again",
                )
            # Done again by the library, a commit would be made on a snapshot that nobody looked at.
            properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
            table.metadata = table.metadata.model_copy(update={"properties": properties})
            if table.io.properties != self.directory.credentials:
                # A catalogue hands out some that expire.
                self.directory = SinkDirectory(self.sink, table)
            return table

    def _recorded(self, table: Any) -> Writer | None:
        generation = table.properties.get(f"{self._properties}generation")
        attempt = table.properties.get(f"{self._properties}attempt")
        return None if generation is None else Writer(int(generation), attempt)

    def _check_newest(self, table: Any) -> None:
        newest = self._recorded(table)
        if newest is not None and not newest.gives_way(self.me):
            key = f"{self._properties}generation"
            forget = (
                "remove the property with "
                f"`table.transaction().remove_properties({key!r}).commit_transaction()`"
            )
            raise fenced(self.sink, self.me, newest, f"the table's property {key!r}", forget)

    def _committed_by(self, start: WriterStart) -> str:
        # By the name that the sink had then.
        of_start = f"{start.subtask}.{start.generation}.{start.attempt}"
        return f"tidelog.{start.sink}.committed.{of_start}"

    def _answer(self, call: Callable[[], T]) -> T:
        """What a call of the library gives, which knows no deadlines itself."""
        with self._failures():
            return bounded(self._where, self._answer_s, call)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except TidelogError:
            raise
        except OSError as error:
            raise errors.from_os_error(error, self._where) from error
        except Exception as error:
            # A catalogue reports failures of its database and its HTTP client as they are.
            raise _translated(error, self._where) from error


def _columns(schema: Any) -> dict[int, str]:
    """Name and type of each column, by its number."""
    return {column.field_id: f"{column.name} {column.field_type}" for column in schema.columns}


def _catalog(catalog: Catalog) -> Any:
    with optional_library("an Iceberg sink", "the library pyiceberg", "iceberg"):
        load_catalog = import_module("pyiceberg.catalog").load_catalog
        import_module("pyarrow")
    for library in ("pyiceberg", "pyarrow"):
        note_version(library)
    if isinstance(catalog, str):
        return load_catalog(catalog)
    # A catalogue in a database has the tables of several, by their names.
    return load_catalog(**{"name": "default", **catalog})


def _translated(error: Exception, where: str) -> TidelogError:
    message = f"{type(error).__name__}: " + " ".join(str(error).split())
    kinds: dict[str, tuple[type[TidelogError], str]] = {
        "NoSuchTableError": (
            UnavailableError,
            "create it with the columns of the records, or correct its name, or that of the "
            "catalogue: the property 'name', 'default' without it",
        ),
        "NoSuchNamespaceError": (UnavailableError, "create the namespace and the table"),
        "UnauthorizedError": (AccessDeniedError, "check the credentials of the catalogue"),
        "ForbiddenError": (AccessDeniedError, "grant access to the table"),
        "ServiceUnavailableError": (StoreUnreachableError, "wait until the catalogue is back"),
        "ConnectionError": (StoreUnreachableError, "check that the catalogue can be reached"),
    }
    kind, action = kinds.get(
        type(error).__name__,
        (StorageError, "see the cause; start again when it is mended, which goes on where it was"),
    )
    return kind(where, found=message, action=action)
