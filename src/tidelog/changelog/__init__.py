"""Internal: the log of changes, from write buffer to segments and back."""
