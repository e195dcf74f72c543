"""What sessions say: a page of Markdown, JSON, and two sessions side by side.

Invariant: everything is computed from records and experiments; nothing is measured here.
"""
