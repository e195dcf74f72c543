"""Internal: how an option is declared, kinds of values and their units."""
