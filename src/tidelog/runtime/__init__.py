"""Internal: graph, tasks, channels, restore, the runner."""
