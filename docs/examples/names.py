"""A lookup: each order with the name and price of its product, from a CSV file.

The table is read to its end before the first order is looked up.

tidelog run names.py:job --input data/orders --output out/names --store out/names-store -- --products data/products
"""

from dataclasses import dataclass
from decimal import Decimal

from tidelog import CsvSource, FileSink, Job, JsonLinesSource


@dataclass
class Arguments:
    input: str
    output: str
    products: str


def job(arguments: Arguments) -> Job:
    job = Job("names")
    table = job.source(CsvSource(arguments.products, schema={"price": Decimal}), name="products")
    orders = job.source(JsonLinesSource(arguments.input), name="orders")
    named = orders.key_by(lambda order: order.product).enrich(
        table.key_by(lambda product: product.product),
        lambda order, product: (order.order, product.name, str(order.amount * product.price)),
        time="processing",
    )
    named.sink(FileSink(arguments.output, fields=("order", "name", "price")))
    return job
