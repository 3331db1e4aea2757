"""Checks of data from outside of this package: results of methods that users write, and pickled objects."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from inspect import getattr_static, isfunction
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np
from scipy.sparse import issparse


class ChecksOwnMethods:
    """Mixin for classes that users subclass; checks the results of methods that users write.

    ``_returns`` maps the name of each method to a check. The check is called with the result and the arguments of the
    method. It returns the result in the types that the package needs, or raises an error. Methods of this package
    are not checked.
    """

    _returns: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, check in cls._returns.items():
            method = getattr_static(cls, name, None)
            if not isfunction(method) or method in _CHECKED:
                continue
            if method.__module__.partition(".")[0] != __package__:
                setattr(cls, name, _check_results(method, check))


def must_be(*kinds: type) -> Callable[..., Any]:
    """Return a check for ``_returns``, which requires an object of a given class."""

    def check(found, *arguments, **options):
        if not isinstance(found, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"expected an object of the class {names}, got {type(found).__name__}.")
        return found

    return check


def with_private(**checks: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return checks for methods of the given names, and of these names after an underscore."""
    return checks | {f"_{name}": check for name, check in checks.items()}


# Methods whose results are already checked.
_CHECKED: WeakSet[Callable[..., Any]] = WeakSet()


def _check_results(method, check):
    @wraps(method)
    def checked(self, *arguments, **options):
        found = method(self, *arguments, **options)
        with errors_of(f"{type(self).__name__}.{method.__name__}"):
            return check(found, *arguments, **options)

    _CHECKED.add(checked)
    return checked


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Return a context manager that adds the name of a method to the message of a ValueError or TypeError."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if type(error) not in (ValueError, TypeError):
            raise
        raise type(error)(f"{name} returned an unusable result: {error}") from error


@contextmanager
def restoring(found):
    """Convert errors in the ``with`` block to a ValueError, which says that the saved object is damaged."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"the saved {type(found).__name__} is damaged: {error}") from error


def require_numbers(name: str, values: Any, *shapes: tuple[int | None, ...]) -> None:
    """Raise ValueError unless ``values`` is an array or sparse matrix of finite numbers that has a given shape."""
    # shapes: allowed shapes, in which None means any length
    if issparse(values):
        # Kernels use the indices of a sparse matrix without checks.
        values.check_format(full_check=True)
    numbers = values.data if issparse(values) else values
    if not isinstance(numbers, np.ndarray) or numbers.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be an array of numbers, got {getattr(numbers, 'dtype', type(numbers).__name__)}."
        )
    if not any(_fits(values.shape, shape) for shape in shapes):
        raise ValueError(f"{name} must have shape {' or '.join(map(str, shapes))}, got {values.shape}.")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite, found NaN or infinity.")


def require_optional_numbers(owner: Any, shapes: Mapping[str, tuple[int | None, ...]]) -> None:
    """Raise ValueError if a given attribute exists, but is not an array of finite numbers of the given shape."""
    for name, shape in shapes.items():
        if hasattr(owner, name):
            values = getattr(owner, name)
            require_numbers(name, values if shape else np.asarray(values), shape)


def _fits(found: tuple[int, ...], shape: tuple[int | None, ...]) -> bool:
    return len(found) == len(shape) and all(length in (own, None) for own, length in zip(found, shape, strict=True))


def require_classes(classes: Any) -> None:
    """Raise ValueError unless classes are an array of distinct labels."""
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or not classes.size:
        raise ValueError(f"classes_ must be a 1-D array of at least one label, got {classes!r}.")
    if len(set(classes.tolist())) < len(classes):
        raise ValueError(f"classes_ must be distinct, got {classes.tolist()}.")


class ChecksPickles:
    """Mixin for dataclasses: a pickle contains only the fields, and the constructor checks the loaded fields."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        with restoring(self):
            type(self).__init__(self, **state)
