"""Decorator of fit methods that restores the estimator if a fit fails."""

from collections.abc import Callable
from functools import partial, wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, overload

from sklearn.base import _fit_context
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf.distributed import Shards, refuse_shards

Fit = TypeVar("Fit", bound=Callable[..., Any])


@overload
def fits(method: Fit) -> Fit: ...


@overload
def fits(*, has_estimators: bool) -> Callable[[Fit], Fit]: ...


def fits(method: Any = None, *, has_estimators: bool = False) -> Any:
    """Decorate a fit method: check parameters first; if the fit fails, restore the previous state of the estimator.

    The state is restored because an interrupt may occur between any two statements, even between two assignments of
    fitted attributes. A method that requires y raises ValueError if y is missing or None. It also raises ValueError if
    X is Shards, which already contain labels.
    """
    # has_estimators: whether parameters can be estimators passed by the user, which check their parameters themselves
    if method is None:
        return partial(fits, has_estimators=has_estimators)
    checked = _fit_context(prefer_skip_nested_validation=not has_estimators)(method)
    y = signature(method).parameters.get("y")
    needs_y = y is not None and y.default is Parameter.empty

    @wraps(method)
    def fit(estimator, *args, **kwargs):
        if needs_y and (args[1] if len(args) > 1 else kwargs.get("y")) is None:
            if args and isinstance(args[0], Shards):
                refuse_shards(f"{type(estimator).__name__}.{method.__name__}")
            raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
        _refuse_classes(estimator)
        before = dict(vars(estimator))
        try:
            return checked(estimator, *args, **kwargs)
        except BaseException:
            estimator.__dict__ = before
            raise

    return fit


def _refuse_classes(estimator: Any) -> None:
    """Raise InvalidParameterError if a parameter is a class instead of an instance of this class."""
    for name, value in estimator.get_params(deep=False).items():
        for own in value if isinstance(value, list | tuple) else [value]:
            if isinstance(own, type) and hasattr(own, "get_params"):
                raise InvalidParameterError(
                    f"The {name!r} parameter of {type(estimator).__name__} must be an object, got the class "
                    f"{own.__name__}: call it, as in {name}={own.__name__}(...)."
                )
