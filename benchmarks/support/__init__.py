"""Helpers that several benchmarks share: data, measures, records, peers."""
