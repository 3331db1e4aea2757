"""Compare joint fits with one GaussianMixture or FactorAnalysis per class, and time conditional fits.

Both packages get the same samples, classes and numbers of components, and start from k-means (this package also from
the best of five starts). Both stop when an iteration gains less than the same log-likelihood per sample. The models
differ: this package has low-rank plus diagonal covariances, and scikit-learn has full covariances. The held-out
log-likelihood is therefore printed beside the time.

``starts`` compares fits from one start for three classes with d = 9, 40 and 784 features: three components with
GaussianMixture, and one component with FactorAnalysis, all with their default tolerances.

    OMP_NUM_THREADS=1 python benchmarks/peers/mfa_speed.py [starts] [small] [large] [conditional]

Without ``OMP_NUM_THREADS=1``, OpenMP threads wait for each other in loops on a busy machine, which would increase the
processor time of scikit-learn.
"""

import argparse
import time
import warnings

import _path  # noqa: F401  finds the support package
import numpy as np
from support.class_densities import AnalyserPerClass, MixturePerClass, low_rank_clusters

from sklearn_crf import MultiConditionalMFA


def timed(name, model, X, y, X_test, y_test):
    start, cpu = time.perf_counter(), time.process_time()
    model.fit(X, y)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    joint = model.joint_log_likelihood(X_test)
    held_out = joint[np.arange(len(y_test)), y_test].mean()
    accuracy = (joint.argmax(axis=1) == y_test).mean()
    print(
        f"{name:32} {seconds:8.2f} s wall {cpu:8.2f} s CPU {model.n_iter_:5} iterations, converged {model.converged_}, "
        f"held-out log P(x, c) {held_out:10.3f}, accuracy {accuracy:.4f}",
        flush=True,
    )
    return seconds, cpu


def against_full_covariances(n_samples, n_features, n_factors, separation, n_jobs, tol, max_iter):
    X, y = low_rank_clusters(n_samples + 5000, n_features, 2, 5, n_factors, 0, separation)
    parts = X[:n_samples], y[:n_samples], X[n_samples:], y[n_samples:]
    print(f"\nd = {n_features}, n = {n_samples}, K = 5, two classes, p = {n_factors}, tol = {tol}")
    reference = timed("GaussianMixture(full)", MixturePerClass(5, tol, max_iter), *parts)
    for n_init in (1, 5):
        ours = MultiConditionalMFA(
            5, n_factors, objective="joint", noise="tied", n_init=n_init, random_state=0, n_jobs=n_jobs
        )
        ours.set_params(tol=tol, max_iter=max_iter)
        used = timed(f"MultiConditionalMFA, {n_init} start(s)", ours, *parts)
        print(f"    faster by {reference[0] / used[0]:.2f} wall, {reference[1] / used[1]:.2f} CPU")


def start_for_start(n_samples, n_features, n_factors, n_repeats=3):
    X, y = low_rank_clusters(n_samples + 3000, n_features, 3, 3, n_factors, 0, 1.0)
    parts = X[:n_samples], y[:n_samples], X[n_samples:], y[n_samples:]
    options = {"n_init": 1, "random_state": 0, "n_jobs": 1}
    groups = {
        "GaussianMixture(3)": (
            MixturePerClass(3, 1e-3, 100),
            {
                "MFA(3), joint": MultiConditionalMFA(3, n_factors, objective="joint", noise="tied", **options),
                "MFA(3), alpha = 1": MultiConditionalMFA(3, n_factors, noise="tied", alpha=1.0, **options),
                "MFA(3), alpha = 0.01": MultiConditionalMFA(3, n_factors, noise="tied", alpha=0.01, **options),
            },
        ),
        "FactorAnalysis": (
            AnalyserPerClass(n_factors),
            {
                "MFA(1), joint": MultiConditionalMFA(1, n_factors, objective="joint", noise="class", **options),
                "MFA(1), alpha = 0.01": MultiConditionalMFA(1, n_factors, noise="class", alpha=0.01, **options),
            },
        ),
    }
    print(f"\nd = {n_features}, n = {n_samples}, three classes, p = {n_factors}, least of {n_repeats} runs")
    for name, (reference, ours) in groups.items():
        base = min(timed(name, reference, *parts)[1] for _ in range(n_repeats))
        for label, model in ours.items():
            used = min(timed(label, model, *parts)[1] for _ in range(n_repeats))
            print(f"    {label}: {used / base:.2f} times the CPU seconds of {name}")


def conditional(n_jobs):
    X, y = low_rank_clusters(5000, 9, 2, 8, 3, 0, 1.0)
    print("\nL-BFGS, conditional likelihood, N = 5000, K = 5, p = 3, d = 9")
    # With five starts on two cores, one core runs three starts: the wait is the CPU time of three starts.
    for n_init in (1, 3, 5):
        model = MultiConditionalMFA(5, 3, noise="tied", alpha=0, n_init=n_init, random_state=0, n_jobs=n_jobs)
        start, cpu = time.perf_counter(), time.process_time()
        model.fit(X, y)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        print(
            f"n_init = {n_init}: {seconds:.2f} s wall {cpu:.2f} s CPU, {model.n_iter_} iterations in the chosen run, "
            f"converged {model.converged_}, loss {model.loss_curve_[-1]:.4f}"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["starts", "small", "large", "conditional"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tol", type=float, default=1e-4)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if "starts" in args.parts:
        start_for_start(6000, 9, 3)
        start_for_start(3000, 40, 4)
        start_for_start(6000, 784, 10)
    if "small" in args.parts:
        against_full_covariances(50000, 9, 3, 1.0, args.jobs, args.tol, 1000)
    if "large" in args.parts:
        against_full_covariances(20000, 784, 10, 2.0, args.jobs, args.tol, 1000)
    if "conditional" in args.parts:
        conditional(args.jobs)


if __name__ == "__main__":
    main()
