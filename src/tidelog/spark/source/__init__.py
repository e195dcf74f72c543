"""A Spark data source over what tidelog stores: `spark.read.format("tidelog")`.

`options` and `views` say what is asked for, and are pure. `planning` finds the layout of
a location: `job` has the views of tidelog's own stores, `query` the two of the checkpoints of the
Spark plug-in; both make `parts`, which executors read. `datasource` is what Spark sees; nothing
else here imports pyspark, but all of it pyarrow, which data sources in Python need anyway.
docs/guides/data-source.md is for its users.
"""
