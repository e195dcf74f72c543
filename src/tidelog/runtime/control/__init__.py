"""Control of a running job from another process of the same user on the same machine.

Invariant: a client gets one last line, an answer or an error, or the connection ends, which means
that the job ended. Protocol: docs/guides/savepoints.md, "Control socket".
"""
