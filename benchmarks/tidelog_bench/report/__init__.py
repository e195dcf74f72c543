"""What a session says: a summary for the terminal, a page to read and to print.

Invariant: everything is computed from records and experiments; nothing is measured here.
"""
