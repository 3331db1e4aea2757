"""Decorator of fit methods that restores the estimator if a fit fails."""

from collections.abc import Callable
from functools import partial, wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, overload

from sklearn.base import _fit_context

from sklearn_crf.distributed import Shards, refuse_shards

Fit = TypeVar("Fit", bound=Callable[..., Any])


@overload
def fits(method: Fit) -> Fit: ...


@overload
def fits(*, has_estimators: bool) -> Callable[[Fit], Fit]: ...


def fits(method: Any = None, *, has_estimators: bool = False) -> Any:
    """Make a fit method check the parameters first, and restore the estimator's former state if the fit fails.

    An interrupt may come between any two statements, even between two assignments of fitted attributes. A method that
    requires y refuses Shards, which hold their own labels.
    """
    # has_estimators: whether parameters hold estimators of the user, which must check their own parameters
    if method is None:
        return partial(fits, has_estimators=has_estimators)
    checked = _fit_context(prefer_skip_nested_validation=not has_estimators)(method)
    y = signature(method).parameters.get("y")
    needs_y = y is not None and y.default is Parameter.empty

    @wraps(method)
    def fit(estimator, *args, **kwargs):
        if needs_y and len(args) == 1 and "y" not in kwargs and isinstance(args[0], Shards):
            refuse_shards(f"{type(estimator).__name__}.{method.__name__}")
        before = dict(vars(estimator))
        try:
            return checked(estimator, *args, **kwargs)
        except BaseException:
            estimator.__dict__ = before
            raise

    return fit
