"""Photographs restored in one call, by fields that come with the package."""

from sklearn_crf.restoration._restore import restore

__all__ = ["restore"]
