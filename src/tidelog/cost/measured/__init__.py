"""What the changelog of a job costs: measured in its store, and what the formulas predict.

Invariants: decisions are pure functions of facts, and the facts are the same whether Spark has
gathered them or this process; a figure that the store cannot tell is None with the reason.
"""
