"""Operators: what a task runs on its buffers."""
