"""Internal: states by key, values and their types, restore."""
