"""tidelog: durable state for stream processing.

The public API is `__all__` of this module, which `__init__.pyi` lists; everything else may change
between releases. Names are loaded on first use, so that importing tidelog stays cheap.
"""

import logging

import lazy_loader

# Quiet unless the program that uses tidelog configures logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
