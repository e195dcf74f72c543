"""One module per system with `run(task)`, which gives the figures of a run, imported where that
system is installed; `PACKAGE` says whose version they are of."""
