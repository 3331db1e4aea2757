"""Limits of an optimisation that the plans of all fits have."""

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, eq=False, kw_only=True)
class FitLimits:
    """Parameters that the plan of every fit has; base of the plans."""

    max_iter: int
    n_jobs: int | None
    verbose: int

    @staticmethod
    def limits(estimator: Any) -> dict[str, Any]:
        """Return these parameters of an estimator."""
        return {field.name: getattr(estimator, field.name) for field in fields(FitLimits)}
