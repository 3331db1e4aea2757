"""Relaxations of the MAP problem: AD3, dual decomposition, incremental max-product, and tightening by clusters."""
