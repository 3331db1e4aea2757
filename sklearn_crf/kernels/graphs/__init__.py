"""Kernels of graphs: neighbours, traversals and elimination orders."""
