"""Fully connected fields with Gaussian edges."""
