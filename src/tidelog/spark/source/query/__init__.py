"""The views of the checkpoint of a Spark query that ran with the plug-in.

A checkpoint is a batch here, a subtask a partition, a sequence number a state version.
"""
