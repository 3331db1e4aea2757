"""Exact inference: trees, elimination, enumeration, the best labelings, and the linear program of the relaxation."""
