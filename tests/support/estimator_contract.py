"""scikit-learn's own checks of an estimator, and which of them its logistic regression passes and ours does not."""

import warnings
from functools import cache

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator


def passed_checks(estimator, expected_failures=None):
    """Names of the checks that passed, as often as each did; none may have failed but those with a reason."""
    results = _results(estimator, expected_failures)
    failed = [(result["check_name"], result["exception"]) for result in results if result["status"] == "failed"]
    assert not failed
    return _passed(results)


def missing_checks(passed):
    """What scikit-learn's logistic regression passes and is not among these names.

    Checks on other array libraries are left out. So no check is lost in silence: the rest are on parameters that it has
    and the estimator has not.
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
