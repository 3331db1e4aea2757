"""Invalid options of algorithms raise errors that name the option."""

import warnings

import numpy as np
import pytest
from test_inference_contract import ALGORITHMS

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import BruteForce
from sklearn_crf.models import PairwiseModel

MODEL = PairwiseModel(lattice((3,)), np.zeros((3, 2)), np.zeros((1, 2, 2)))
NO_OPTIONS = [np.zeros(2), np.zeros(0), {}, "nonsense", object(), np.nan, 1j, np.bool_(True)]


def options_of(kinds):
    """Return the options of all algorithms whose default is of the given kinds."""
    found = []
    for cls in (*ALGORITHMS, BruteForce):
        for option, default in cls().get_params(deep=False).items():
            # Trees and probabilities of edges may be arrays.
            if type(default) in kinds and option not in ("random_state", "trees", "edge_probabilities"):
                found.append(pytest.param(cls, option, id=f"{cls.__name__}-{option}"))
    return found


@pytest.mark.parametrize(("cls", "option"), options_of((int, float, str)))
def test_what_is_no_option_is_named(cls, option):
    for value in NO_OPTIONS:
        with pytest.raises(ValueError, match=option):
            getattr(cls(**{option: value}), min(cls.tasks))(MODEL)


# Size limits may be any numbers.
LIMITS = ("max_work", "max_width", "max_memory", "max_labelings", "max_variables")
COUNTS = [case for case in options_of((int,)) if case.values[1] not in LIMITS]


@pytest.mark.parametrize(("cls", "option"), COUNTS)
def test_counts_are_integers(cls, option):
    with pytest.raises(ValueError, match=f"{option} must be an integer, got 2.5"):
        getattr(cls(**{option: 2.5}), min(cls.tasks))(MODEL)


@pytest.mark.parametrize(("cls", "option"), options_of((bool,)))
def test_switches_are_true_or_false(cls, option):
    with pytest.raises(ValueError, match=f"{option} must be True or False"):
        getattr(cls(**{option: np.zeros(2)}), min(cls.tasks))(MODEL)


@pytest.mark.parametrize(("cls", "option"), options_of((float,)))
def test_infinite_options_are_refused_or_give_no_warning(cls, option):
    algorithm = cls(**{option: np.inf})
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            getattr(algorithm, min(cls.tasks))(MODEL)
        except ValueError as error:
            assert option in str(error)  # noqa: PT017  a result is as good


@pytest.mark.parametrize("cls", [case.values[0] for case in COUNTS if case.values[1] == "max_iter"])
def test_a_huge_max_iter_is_allowed_or_named(cls):
    try:
        getattr(cls(max_iter=10**30), min(cls.tasks))(MODEL)
    except ValueError as error:
        assert "max_iter" in str(error)  # noqa: PT017  a result is as good
