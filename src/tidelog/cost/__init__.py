"""Internal: the cost model, the planner, and what a log was measured to take."""
