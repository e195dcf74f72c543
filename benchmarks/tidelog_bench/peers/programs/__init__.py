"""One module per system with `run(task) -> Outcome`, imported where that system is installed."""
