"""Automatic choice among algorithms, by the cost of exact inference, and combinations of several algorithms."""
