"""Minimum cuts: binary models, expansion and swap moves."""
