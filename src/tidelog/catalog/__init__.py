"""Internal: what a store holds, for every reader of it."""
