"""The scale model: jobs of thousands of subtasks on the real schedulers, sizes instead of bytes."""
