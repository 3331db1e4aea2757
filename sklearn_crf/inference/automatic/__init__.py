"""The choice among algorithms: what exactness costs, and what several find together."""
