"""The keyed operators of a job in Spark's `transformWithState`, with their rows as tidelog's bytes."""
