"""Contrastive objectives over sets of labelings, and their generators."""
