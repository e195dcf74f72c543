"""The query zoo."""

from tests.spark.support.zoo import aggregations, joins, processors, windows
from tests.spark.support.zoo.query import Query

QUERIES: dict[str, Query] = {
    query.name: query
    for module in (aggregations, windows, joins, processors)
    for query in module.QUERIES
}
