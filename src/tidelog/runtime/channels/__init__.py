"""Channels between tasks: messages, buffers and room, partitioners, wiring."""
