"""Kernel of learned filters."""
