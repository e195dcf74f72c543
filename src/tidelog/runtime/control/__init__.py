"""Control of a running job from another process of the same user on the same machine.

Invariant: whoever asks gets one last line, an answer or an error, or the connection ends, which
means that the job ended. Protocol: docs/savepoints.md, "Control socket".
"""
