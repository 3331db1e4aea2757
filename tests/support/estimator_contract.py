"""Results of scikit-learn's checks of an estimator, compared with the checks that its logistic regression passes."""

import warnings
from functools import cache

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator


def passed_checks(estimator, expected_failures=None):
    """Return the names of passed checks, with repetitions, after asserting that only expected checks failed."""
    results = _results(estimator, expected_failures)
    failed = [(result["check_name"], result["exception"]) for result in results if result["status"] == "failed"]
    assert not failed
    return _passed(results)


def missing_checks(passed):
    """Return the names of checks that scikit-learn's logistic regression passes and that are not in ``passed``.

    Checks with other array libraries are left out. The remaining names should be checks of parameters that the
    estimator does not have, so a check that no longer runs is noticed.
    """
    return {name for name in _reference() - set(passed) if "array_api" not in name}


@cache
def _reference():
    return set(_passed(_results(LogisticRegression())))


def _results(estimator, expected_failures=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return check_estimator(estimator, expected_failed_checks=expected_failures, on_fail=None)


def _passed(results):
    return [result["check_name"] for result in results if result["status"] == "passed"]
