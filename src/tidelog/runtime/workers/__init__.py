"""The subtasks of a job in several processes of one machine."""
