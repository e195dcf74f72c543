"""Internal: whether a recovery would be right."""
