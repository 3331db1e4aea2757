"""Kernels of message passing."""
