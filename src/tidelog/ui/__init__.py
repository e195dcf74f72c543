"""Internal: a page for operators, with what a job does and what its store holds.

Invariant: nothing is written to a store or to a job; everything on the page is in one document, so
the live page and the file to mail show the same.
"""
