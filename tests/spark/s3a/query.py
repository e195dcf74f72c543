"""A word count on a checkpoint, as a program of its own: it can be killed as a driver is.

    python -m tests.spark.s3a.query PARAMETERS

PARAMETERS is a JSON object of `Parameters`. One batch for each input file, until none is left;
then the state, read from the checkpoint, goes to standard output as one JSON object.
"""

import json
import sys
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

import tidelog.spark


@dataclass(frozen=True)
class Parameters:
    """What to run; without `run` the state is only read."""

    checkpoint: str
    input: str
    run: bool = True
    settings: dict[str, str] = field(default_factory=dict)


def session(settings: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder.config(key, value)
    return tidelog.spark.configure(builder).getOrCreate()


def count_words(spark: SparkSession, parameters: Parameters) -> None:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(parameters.input)
    counts = lines.groupBy("value").count()
    output = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    output.option("checkpointLocation", parameters.checkpoint).start().awaitTermination()


def read_state(spark: SparkSession, parameters: Parameters) -> dict[str, int]:
    rows = spark.read.format("statestore").load(parameters.checkpoint)
    flat = rows.selectExpr("key.value AS word", "value.count AS count")
    return {row["word"]: row["count"] for row in flat.collect()}


def main(argument: str) -> None:
    parameters = Parameters(**json.loads(argument))
    spark = session(parameters.settings)
    if parameters.run:
        count_words(spark, parameters)
    print(json.dumps(read_state(spark, parameters)))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
