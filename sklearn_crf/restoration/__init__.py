"""Image restoration: a function that restores photographs, and a model that learns filters for other damage."""

from sklearn_crf.restoration._learned_filters import LearnedFilters
from sklearn_crf.restoration._restore import restore

__all__ = ["LearnedFilters", "restore"]
