"""tidelog: durable state for stream processing.

Public are the names that `__init__.pyi` lists here and in `tidelog.spark`, and the jobs in
`tidelog.examples`. All other packages and modules are internal: they may change in any release.
Names are loaded on first use, so that importing tidelog stays cheap.
"""

import sys

# While Python looks for the module of `python -m`, it stands for its name in `sys.argv`.
if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] == __name__:
    from tidelog.interrupt import end_when_interrupted

    end_when_interrupted()

import logging

from tidelog.public import public_names

# Quiet unless the program that uses tidelog configures logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__getattr__, __dir__, _names = public_names(__name__, __file__, ("spark", "examples"))
# `from tidelog import *` leaves Python's own `open` alone; `tidelog.open` is as public as the rest.
__all__ = [name for name in _names if name != "open"]
