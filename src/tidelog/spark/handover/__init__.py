"""State of an embedded job as the first state of a Spark query, and the way back."""
