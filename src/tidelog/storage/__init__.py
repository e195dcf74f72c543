"""Internal: the object-store port and its adapters."""
