"""Figure 1 of Vickrey et al. 2010: the weight theta_0 of a chain as its coupling theta_1 grows.

    python benchmarks/papers/ccg_chain.py [--data-sets 100] [--results FILE] [--picture FILE]
    python benchmarks/papers/ccg_chain.py check

The model is a chain of ten binary nodes without features, score = theta_0 * #{y_i = 1} + theta_1 * #{y_i = y_(i+1)},
with theta_0 = 0.139. Each data set has 1,000 samples. All 1,024 labelings are enumerated once, and an objective is a
sum over the labelings that occur. The solution of contrastive divergence is the point at which its expected update is
zero; the distribution after k sweeps is computed exactly, not sampled. ``check`` compares the estimates for one data
set with the estimates of ``ContrastiveCRF``. Results are stored for each theta_1.
"""

import argparse
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.optimize import minimize, root
from scipy.special import logsumexp
from support.record import read_record, write_record

N_NODES, N_SAMPLES, THETA_0 = 10, 1000, 0.139
COUPLINGS = np.arange(0, 5.01, 0.5)
STATES = np.indices((2,) * N_NODES).reshape(N_NODES, -1).T
FEATURES = np.stack((STATES.sum(axis=1), (STATES[:, 1:] == STATES[:, :-1]).sum(axis=1)), axis=1).astype(float)
# Number of the state with one node flipped; the first node is the highest bit.
FLIPPED = np.arange(2**N_NODES)[:, None] ^ (1 << np.arange(N_NODES - 1, -1, -1))
METHODS = ("exact ML", "PL", "Simple Contrastive", "Contrastive", "CD-1", "CD-10")


def probabilities(theta):
    scores = FEATURES @ theta
    return np.exp(scores - logsumexp(scores))


def set_loss(theta, counts, members):
    """Return the loss of the states of one set, the negative log-likelihood within the set, and its gradient."""
    features, counts = FEATURES[members], counts[members]
    scores = features @ theta
    log_z = logsumexp(scores)
    expected = np.exp(scores - log_z) @ features
    return counts.sum() * log_z - counts @ scores, counts.sum() * expected - counts @ features


def pseudolikelihood(theta, counts):
    seen = np.flatnonzero(counts)
    difference = FEATURES[FLIPPED[seen]] - FEATURES[seen, None]
    gain = difference @ theta
    share = counts[seen, None] / (1 + np.exp(-gain))
    return float(counts[seen] @ np.logaddexp(0, gain).sum(axis=1)), np.einsum("sn,snk->k", share, difference)


def objective(method, counts):
    everything, ends, seen = np.arange(len(STATES)), np.array([0, len(STATES) - 1]), np.flatnonzero(counts)
    if method == "exact ML":
        return lambda theta: set_loss(theta, counts, everything)
    if method == "PL":
        return lambda theta: pseudolikelihood(theta, counts)
    further = ends if method == "Simple Contrastive" else seen

    def loss(theta):
        (a, slope_a), (b, slope_b) = pseudolikelihood(theta, counts), set_loss(theta, counts, further)
        return a + b, slope_a + slope_b

    return loss


def after_sweeps(theta, distribution, n_sweeps):
    """Return the distribution after Gibbs sweeps from the first node to the last."""
    scores = FEATURES @ theta
    stay = 1 / (1 + np.exp(scores[FLIPPED] - scores[:, None]))
    for _ in range(n_sweeps):
        for node in range(N_NODES):
            both = distribution + distribution[FLIPPED[:, node]]
            distribution = both * stay[:, node]
    return distribution


def estimate(method, counts):
    start = np.array([0.0, 0.5])
    if not method.startswith("CD"):
        loss = objective(method, counts / N_SAMPLES)
        return minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-8}).x
    data = counts / N_SAMPLES
    n_sweeps = int(method.removeprefix("CD-"))
    start = estimate("PL", counts)
    found = root(lambda theta: (data - after_sweeps(theta, data, n_sweeps)) @ FEATURES, start, tol=1e-9)
    return found.x if found.success else np.full(2, np.nan)


def data_set(coupling, number):
    rng = np.random.default_rng([round(10 * coupling), number])
    return rng.multinomial(N_SAMPLES, probabilities(np.array([THETA_0, coupling]))).astype(float)


def run(options):
    results = read_record(options.results, {})
    print("theta_1 " + " ".join(f"{name:>24s}" for name in METHODS) + "   median (quartiles)")
    for coupling in COUPLINGS:
        key = f"{coupling:.1f} of {options.data_sets}"
        if key not in results:
            sets = [data_set(coupling, k) for k in range(options.data_sets)]
            results[key] = {name: [float(estimate(name, counts)[0]) for counts in sets] for name in METHODS}
            write_record(options.results, results)
        cells = []
        for name in METHODS:
            low, middle, high = np.nanpercentile(results[key][name], [25, 50, 75])
            failed = int(np.isnan(results[key][name]).sum())
            cells.append(f"{middle:.3f} ({low:.3f} {high:.3f})" + (f" {failed}!" if failed else ""))
        print(f"{coupling:7.1f} " + " ".join(f"{cell:>24s}" for cell in cells), flush=True)
    return results


def draw(results, options):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
    shift = np.linspace(-0.12, 0.12, len(METHODS))
    for name, move in zip(METHODS, shift, strict=True):
        quartiles = np.array(
            [np.nanpercentile(results[f"{c:.1f} of {options.data_sets}"][name], [25, 50, 75]) for c in COUPLINGS]
        ).T
        spread = np.abs(quartiles[[0, 2]] - quartiles[1])
        axis.errorbar(COUPLINGS + move, quartiles[1], spread, marker="o", markersize=3, linewidth=1, label=name)
    axis.axhline(THETA_0, color="black", linewidth=0.8, linestyle="--")
    axis.set(xlabel=r"coupling $\theta_1$ of the data", ylabel=r"estimate of $\theta_0$")
    axis.legend(fontsize=8, loc="lower center", ncols=2)
    fig.savefig(options.picture, dpi=110)


def check():
    """Print the largest difference between our estimates and the estimator's, on one data set."""
    from sklearn_crf import ContrastiveCRF, DRFClassifier
    from sklearn_crf.learning import ContrastiveTraining

    model = {"edge_features": "constant", "pairwise": "potts", "fit_intercept": False}
    shared = model | {"C": 1e6, "tol": 1e-8, "max_iter": 500}
    counts = data_set(2.0, 0)
    y = np.repeat(STATES, counts.astype(int), axis=0)
    X = np.ones((*y.shape, 1))
    fields = {
        "exact ML": DRFClassifier(learning="likelihood", inference="tree", **shared),
        "PL": ContrastiveCRF(learning=ContrastiveTraining(generator=None), **shared),
        "Simple Contrastive": ContrastiveCRF(
            learning=ContrastiveTraining(generator=None, given=[STATES[[0, -1]]]), **shared
        ),
        "Contrastive": ContrastiveCRF(learning=ContrastiveTraining(init="observed", generator=None), **shared),
    }
    for name, field in fields.items():
        field.fit(X, y)
        ours = np.array([field.coef_.item(), field.edge_coef_.item()])
        print(f"{name:18s} {ours.round(6)}  differs by {np.abs(ours - estimate(name, counts)).max():.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="run", choices=["run", "check"])
    parser.add_argument("--data-sets", type=int, default=100)
    parser.add_argument("--results", type=Path, default=Path("ccg_chain.json"))
    parser.add_argument("--picture", type=Path, default=Path("ccg_chain.png"))
    options = parser.parse_args()
    if options.what == "check":
        check()
    else:
        draw(run(options), options)


if __name__ == "__main__":
    main()
