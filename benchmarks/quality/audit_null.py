"""Measure how often audits find a worse pair although all pairs are equally good; at most 5 % are expected.

    python benchmarks/quality/audit_null.py                    # three minutes
    python benchmarks/quality/audit_null.py --sets 500 --audits 50

A null data set is a matrix of the scores of 20 pairs for 12, 30 or 100 examples, in which all pairs have the same
expected score. There are five kinds of data: normal noise plus a common part; fractions of correct labels of 40 nodes;
noise of five learning methods and of four inferences; skewed noise; and pairs that rarely differ. A pair gets a star if
its p-value by ``coupling_audit`` is below 0.05. For comparison, the fraction of data sets with a star is also printed
for Wilcoxon's test against the best pair with Holm's correction, which does not account for the choice of the best
pair. Real audits compare five estimators and four inferences on chains with random labels, so that all pairs are
equally good.
"""

import argparse
import warnings

import numpy as np
from scipy.stats import wilcoxon

from sklearn_crf import TRWCRF, DRFClassifier
from sklearn_crf.model_selection import compare_with_best, coupling_audit

N_PAIRS, LEVEL = 20, 0.05


def normal(rng, n_examples):
    """Return normal noise plus a part that all pairs share."""
    return 0.8 * rng.normal(size=n_examples) + rng.normal(size=(N_PAIRS, n_examples))


def shares(rng, n_examples):
    """Return shares of correct labels of 40 nodes."""
    right = np.broadcast_to(rng.beta(8, 2, size=n_examples), (N_PAIRS, n_examples))
    return rng.binomial(40, right) / 40


def crossed(rng, n_examples):
    """Return noise of five learning methods, of four inferences, and of pairs."""
    learning, inference = rng.normal(size=(5, 1, n_examples)), 0.5 * rng.normal(size=(1, 4, n_examples))
    return (learning + inference + 0.3 * rng.normal(size=(5, 4, n_examples))).reshape(N_PAIRS, n_examples)


def skewed(rng, n_examples):
    """Return noise with a long tail on one side."""
    return -(rng.exponential(size=(N_PAIRS, n_examples)) ** 1.5)


def rare(rng, n_examples):
    """Return pairs that differ for a tenth of the examples."""
    return 0.9 - (rng.random((N_PAIRS, n_examples)) < 0.1) * rng.random((N_PAIRS, n_examples))


KINDS = {kind.__name__: kind for kind in (normal, shares, crossed, skewed, rare)}


def star_by_holm(scores):
    """Return whether Wilcoxon's test against the best pair finds a worse pair, ignoring how the best was chosen."""
    difference = np.delete(scores - scores[np.argmax(scores.mean(axis=1))], np.argmax(scores.mean(axis=1)), axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p_value = np.sort([wilcoxon(row, method="approx").pvalue if row.any() else 1.0 for row in difference])
    return bool(p_value[0] * len(p_value) < LEVEL)


def star_of_audit(seed):
    """Return whether an audit finds a worse pair on chains with random labels."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(30, 12, 3)), rng.integers(2, size=(30, 12))
    estimators = {f"likelihood, C={C}": TRWCRF(C=C, max_iter=50) for C in (0.01, 1.0)}
    estimators |= {f"pl, C={C}": DRFClassifier(C=C, learning="pl", max_iter=50) for C in (0.01, 1.0)}
    estimators["spa"] = DRFClassifier(inference="map", max_iter=20)
    inference = {"MAP": "map", "MPM": "mpm", "ICM": "icm", "TRW": "trw"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        audit = coupling_audit(estimators, X, y, inference=inference, cv=3, random_state=seed)
    return bool(np.any(audit.results["p_value"] < LEVEL))


def main():
    """Print the shares of null data with a star."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=500, help="null data sets of each kind and size")
    parser.add_argument("--audits", type=int, default=50, help="real audits")
    arguments = parser.parse_args()
    print(f"Share of {arguments.sets} null data sets with a star, and by Holm's test against the best pair")
    for name, kind in KINDS.items():
        for n_examples in (12, 30, 100):
            rng, stars = np.random.default_rng(0), np.zeros(2)
            for number in range(arguments.sets):
                scores = kind(rng, n_examples)
                found = compare_with_best(scores, np.random.RandomState(number))
                stars += np.any(found["p_value"] < LEVEL), star_by_holm(scores)
            share = stars / arguments.sets
            print(f"  {name:8} {n_examples:4} examples  {share[0]:.3f}  {share[1]:.3f}", flush=True)
    if arguments.audits:
        stars = sum(star_of_audit(seed) for seed in range(arguments.audits))
        print(f"Share of {arguments.audits} audits of coins with a star: {stars / arguments.audits:.3f}")


if __name__ == "__main__":
    main()
