"""Kernels of minimum cuts and of moves by cuts."""
