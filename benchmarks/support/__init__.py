"""What several benchmarks use: data, measures, records, peers."""
