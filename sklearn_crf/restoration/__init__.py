"""Image restoration: photographs in one call, and filters that are learned for other kinds of damage."""

from sklearn_crf.restoration._learned_filters import LearnedFilters
from sklearn_crf.restoration._restore import restore

__all__ = ["LearnedFilters", "restore"]
