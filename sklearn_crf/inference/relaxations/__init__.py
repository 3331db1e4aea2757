"""Relaxations of the best labeling: AD3, dual decomposition, incremental max-product, and tightening by clusters."""
