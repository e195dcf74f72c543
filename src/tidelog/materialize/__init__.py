"""Internal: when tables are uploaded, and how."""
