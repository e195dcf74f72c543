"""Modules with `run(task)` for the word count, and `run_events(task)`, which give the figures of a
run, imported where their system is installed; `PACKAGE` says whose version they are of."""
