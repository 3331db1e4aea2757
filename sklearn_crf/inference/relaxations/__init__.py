"""Relaxations of the best labeling: AD3, dual decomposition and incremental max-product."""
