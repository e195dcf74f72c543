"""How long tests wait for what must happen: on the busiest machine, only what hangs takes so long.

Imported by the applications that tests start with other interpreters too.
"""

PATIENCE_S = 600
"""For one step of an application, such as its start."""

TEST_S = 1800
"""For a test, which may run ten applications one after another."""
