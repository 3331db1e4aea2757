"""Shared constructors and docstrings of option classes."""

from inspect import signature

import pytest
from sklearn.base import clone

from sklearn_crf._options import options
from sklearn_crf._versions import HoldsOptions


@options
class Iterative(HoldsOptions):
    """Iterate.

    Parameters
    ----------
    max_iter : int, default=10
        Most iterations.
    tol : float, default=1e-3
        Tolerance.
    """

    max_iter: int = 10
    tol: float = 1e-3


@options(kw_only=False)
class Drawing(HoldsOptions):
    """Draw.

    Parameters
    ----------
    seed : int, default=0
        Seed.
    """

    seed: int = 0


@options(kw_only=False)
class Damped(Iterative):
    """Iterate with damping.

    Parameters
    ----------
    damping : float, default=5e-1
        Share of the old value.
    """

    damping: float = 5e-1


@options
class Both(Drawing, Iterative):
    """Draw and iterate.

    Notes
    -----
    The default of `max_iter` is its own.
    """

    max_iter: int = 20


def described(cls):
    """Return the parameters that a docstring describes, in order."""
    return [line.split(" : ")[0] for line in cls.__doc__.splitlines() if " : " in line]


def test_options_of_a_class_come_before_those_of_its_base():
    assert list(signature(Damped).parameters) == described(Damped) == ["damping", "max_iter", "tol"]
    assert Damped(0.25).get_params() == {"damping": 0.25, "max_iter": 10, "tol": 1e-3}
    with pytest.raises(TypeError):
        Damped(0.25, 5)


def test_own_entries_stay_as_written_and_inherited_ones_have_the_own_default():
    assert "damping : float, default=5e-1\n" in Damped.__doc__
    assert "max_iter : int, default=10\n    Most iterations." in Damped.__doc__
    assert "max_iter : int, default=20\n    Most iterations." in Both.__doc__


def test_entries_of_all_bases_are_inherited():
    assert list(signature(Both).parameters) == described(Both) == ["seed", "max_iter", "tol"]
    assert Both.__doc__.index("Parameters") < Both.__doc__.index("Notes")


def test_copies_and_representations_are_those_of_estimators():
    assert repr(clone(Both(3, tol=0.5))) == "Both(seed=3, tol=0.5)"


@options(tol=0.1, max_iter=7)
class Rough(Damped):
    """Iterate roughly."""


def test_a_subclass_names_its_own_defaults_and_no_fields():
    assert list(signature(Rough).parameters) == list(signature(Damped).parameters)
    rough = Rough()
    assert (rough.max_iter, rough.tol, rough.damping) == (7, 0.1, 0.5)
    assert (Damped().max_iter, Damped().tol) == (10, 1e-3)
    assert "max_iter : int, default=7" in Rough.__doc__
    assert clone(Rough(tol=0.2)).tol == 0.2
    with pytest.raises(KeyError, match="depth"):
        options(depth=3)(type("Deep", (Damped,), {}))
