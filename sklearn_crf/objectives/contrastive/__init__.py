"""Contrastive objectives over sets of labelings, and generators of labelings."""
