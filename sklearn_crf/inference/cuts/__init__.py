"""Inference by minimum cuts: binary models, expansion moves and swap moves."""
