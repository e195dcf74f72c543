"""The program of a query in Spark's real-time mode: words of a topic, counted into another one."""

import json
import sys

from tests.spark.support.session import build
from tests.spark.support.zoo.query import Topics

WORDS, COUNTS = "words", "counts"
"""The topics that it reads and writes."""
BATCH = "5 seconds"
"""How long a batch goes on: the shortest that Spark allows."""


def main() -> None:
    request = json.loads(sys.argv[1])
    [job] = request["jobs"]
    topics = Topics(**job["topics"])
    spark = build(request["master"], request["settings"], log_level="WARN")
    words = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("subscribe", topics.name(WORDS))
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(value AS STRING) AS key")
    )
    counts = words.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")
    (
        counts.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", topics.name(COUNTS))
        .option("checkpointLocation", job["checkpoint"])
        .outputMode("update")
        .trigger(realTime=BATCH)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
