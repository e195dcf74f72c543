"""What the changelog of a job costs: measured in its store, beside what the formulas predict.

Invariants: decisions are pure functions of facts, and the facts are the same whoever has gathered
them, Spark or this process; a figure that the store cannot tell is None with the reason.
"""
