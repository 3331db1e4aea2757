"""Discriminative random fields with the scikit-learn interface."""
