"""Exact inference: trees, elimination, enumeration, the m best labelings, and the linear relaxation."""
