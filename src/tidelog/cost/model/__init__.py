"""What a job will store, move and cost, computed before it runs.

Invariants: every function is pure (nothing here opens a store or reads a clock); rules of the
runtime are taken from its own settings and constants, so a changed default changes the estimate; a
figure that was measured or looked up stands in a data file with its source.
"""
