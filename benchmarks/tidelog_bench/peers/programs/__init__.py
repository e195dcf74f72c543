"""One module per system with `run(task)`, which gives the figures of a run, imported where that
system is installed; `NOTES` say what they are figures of, and `PACKAGE` whose version."""
