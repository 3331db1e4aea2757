"""Kernels of image features."""
