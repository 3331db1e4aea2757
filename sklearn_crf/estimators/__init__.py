"""The four classifiers that are trained as random fields, and their base classes."""
