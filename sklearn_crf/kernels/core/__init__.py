"""Thread pool, matrix products and containers that all kernels share."""
