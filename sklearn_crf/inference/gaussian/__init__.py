"""Inference in Gaussian models."""
