"""Methods that users write: what they return is checked as it returns."""

from collections.abc import Callable
from functools import wraps
from inspect import getattr_static, isfunction
from typing import Any, ClassVar


class ChecksOwnMethods:
    """Mixin of the bases that users subclass: results of methods from outside of this package are checked.

    ``_returns`` holds a function for the name of each method. It gets the result and the arguments of the call, and
    gives the result back, in the types that the package takes, or raises. Methods of this package are as they are.
    """

    _returns: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, check in cls._returns.items():
            method = getattr_static(cls, name, None)
            if isfunction(method) and not (_is_of_package(method) or hasattr(method, "_checks_result")):
                setattr(cls, name, _checked(method, check))


def must_be(kind: type) -> Callable[..., Any]:
    """A function for ``_returns`` that asks for an object of one class."""

    def check(found, *arguments, **options):
        if not isinstance(found, kind):
            raise TypeError(f"an object of the class {kind.__name__} is needed, got {type(found).__name__}.")
        return found

    return check


def _is_of_package(method):
    return method.__module__.partition(".")[0] == __package__


def _checked(method, check):
    @wraps(method)
    def checked(self, *arguments, **options):
        found = method(self, *arguments, **options)
        with errors_of(f"{type(self).__name__}.{method.__name__}"):
            return check(found, *arguments, **options)

    checked._checks_result = True
    return checked


class errors_of:
    """Context whose ValueError and TypeError say whose result was wrong."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind in (ValueError, TypeError):
            raise kind(f"{self.name} returned what cannot be used: {error}") from error
