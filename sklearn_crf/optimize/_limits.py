"""Parameters that limit every fit."""

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, eq=False, kw_only=True)
class FitLimits:
    """Base class of fit plans, with the parameters that all fit plans share."""

    max_iter: int
    n_jobs: int | None
    verbose: int

    @staticmethod
    def limits(estimator: Any) -> dict[str, Any]:
        """Return a dict of an estimator's limits, such as ``max_iter``, by name."""
        return {field.name: getattr(estimator, field.name) for field in fields(FitLimits)}
