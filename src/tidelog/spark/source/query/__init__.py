"""The views of the checkpoint of a Spark query that ran with the plug-in.

A module per view plans its parts and reads them; `log` finds the changelogs. Here a slot is a
batch, a subtask a partition, a sequence number a state version.
"""
