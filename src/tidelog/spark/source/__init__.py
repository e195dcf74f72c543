"""A Spark data source over what tidelog stores: `spark.read.format("tidelog")`.

`options`, `views`, `wanted` and `intervals` say what is asked for, and are pure. `job` plans and
reads tidelog's own stores, `query` the checkpoints of the Spark plug-in; both make `parts`, which
executors read. `datasource` and `reader` are what Spark sees; nothing else here imports pyspark.
docs/guides/data-source.md is for its users.
"""
