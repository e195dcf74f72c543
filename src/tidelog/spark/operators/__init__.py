"""The keyed operators of a job in Spark's `transformWithState`, a key group at a time."""
