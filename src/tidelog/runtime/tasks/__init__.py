"""Tasks: the loops of subtasks, barrier alignment, the checkpoints of each."""
