"""The four classifiers of fields, and their base classes."""
