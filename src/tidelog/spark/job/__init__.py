"""A job's graph as a query of Spark Structured Streaming."""
