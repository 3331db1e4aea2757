"""Kernels of regression trees and of the models in their leaves."""
