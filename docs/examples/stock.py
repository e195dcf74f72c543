"""The stock of each product: changes in CSV files in, one row for each product in SQLite.

A row is replaced whenever the stock changes, so programs can read the table while the job runs.

tidelog run stock.py:job --input data/stock --output out/stock.db --store out/stock-store
"""

from dataclasses import dataclass

from tidelog import CsvSource, Job, SqliteSink


@dataclass
class Arguments:
    input: str
    output: str


def job(arguments: Arguments) -> Job:
    job = Job("stock")
    changes = job.source(CsvSource(arguments.input, schema={"pieces": int}))
    stock = changes.key_by(lambda change: change.product).sum(
        lambda change: change.pieces, emit_updates=True
    )
    columns = {"product": "text", "pieces": "integer"}
    stock.sink(SqliteSink(arguments.output, "stock", columns, key=["product"]))
    return job
