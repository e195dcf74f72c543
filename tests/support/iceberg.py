"""A catalogue of Iceberg in a directory, by a database of SQLite, and what lies in its tables."""

from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

KINDS = {
    "long": "LongType",
    "int": "IntegerType",
    "string": "StringType",
    "timestamptz": "TimestamptzType",
    "date": "DateType",
    "uuid": "UUIDType",
}


class Lake:
    """Tables below a directory."""

    def __init__(
        self,
        directory: Path,
        database: str = "catalogue.db",
        warehouse: str = "warehouse",
        name: str = "default",
    ) -> None:
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{directory / database}",
            "warehouse": str(directory / warehouse),
        }
        self._name = name
        self._opened: Any = None

    def create(self, table: str, *, required: tuple[str, ...] = (), **columns: str | Any) -> Any:
        """A table with columns of these types, if there is none."""
        types, schemas = import_module("pyiceberg.types"), import_module("pyiceberg.schema")
        fields = [
            types.NestedField(
                at,
                name,
                getattr(types, KINDS[kind])() if isinstance(kind, str) else kind,
                required=name in required,
            )
            for at, (name, kind) in enumerate(columns.items(), 1)
        ]
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(table.partition(".")[0])
        return catalog.create_table_if_not_exists(table, schemas.Schema(*fields))

    def drop(self, table: str) -> None:
        """Drop it from the catalogue; its files stay."""
        self._catalog().drop_table(table)

    def table(self, name: str) -> Any:
        return self._catalog().load_table(name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table(name).scan().to_arrow().to_pylist()
        return found

    def announced(self, name: str) -> list[Path]:
        """Transactions that may have files which are not in the table."""
        return sorted((self.location(name) / "metadata").glob("tidelog-*/*"))

    def unreferenced(self, name: str) -> set[Path]:
        """Data files that are not in the table."""
        tasks = self.table(name).scan().plan_files()
        used = {_path(task.file.file_path) for task in tasks}
        return set((self.location(name) / "data").rglob("*.parquet")) - used

    def recorded(self, name: str) -> list[str]:
        """What the table remembers of commits."""
        return [key for key in self.table(name).properties if ".committed." in key]

    def location(self, name: str) -> Path:
        return _path(self.table(name).location())

    def _catalog(self) -> Any:
        if self._opened is None:
            load = import_module("pyiceberg.catalog").load_catalog
            self._opened = load(self._name, **self.catalog)
        return self._opened


def _path(location: str) -> Path:
    return Path(unquote(urlparse(location).path))
