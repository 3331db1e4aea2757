"""Time one sweep of ICM, mean field and Gibbs sampling, and one pseudolikelihood gradient, on an image.

    python benchmarks/speed/local_methods_speed.py [--side 1000] [--states 2]

Prints milliseconds of processor time (all threads) and of elapsed time for one and two threads, the shortest of several
repetitions.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ICM, GibbsSampler, MeanField, gibbs_sweeps
from sklearn_crf.models import PairwiseModel
from sklearn_crf.objectives.likelihood._pseudolikelihood import compute_pseudolikelihood_terms

N_SWEEPS = 5


def random_field(side, n_states, potts, dtype):
    rng = np.random.default_rng(0)
    table = 0.5 * np.eye(n_states) if potts else rng.uniform(-1, 1, size=(n_states, n_states))
    return PairwiseModel(lattice((side, side)), rng.uniform(-1, 1, size=(side**2, n_states)).astype(dtype), table[None])


def jobs(model):
    """Return the name of each method, and a function of the number of threads that returns its number of sweeps."""
    labels = model.unary.argmax(axis=1)
    icm = ICM(max_iter=N_SWEEPS, schedule="checkerboard")
    mean_field = MeanField(max_iter=N_SWEEPS, tol=0, schedule="checkerboard")
    gibbs = GibbsSampler(n_sweeps=N_SWEEPS, burn_in=0, random_state=0)
    return [
        ("ICM", lambda n: icm.map(model, init=labels, n_threads=n).n_iter),
        ("mean field", lambda n: mean_field.map(model, n_threads=n).n_iter),
        ("Gibbs, labels only", lambda n: gibbs_sweeps(model, labels, N_SWEEPS, 0, n_threads=n) is None or N_SWEEPS),
        ("Gibbs, marginals", lambda n: gibbs.marginals(model, n_threads=n).n_iter),
        ("pseudolikelihood", lambda n: compute_pseudolikelihood_terms(model, labels, n_threads=n) is None or 1),
    ]


def milliseconds(job, n_threads, n_repetitions=3):
    """Return the least processor and wall time of a sweep, including what a call does once (start, score)."""
    least = np.array([np.inf, np.inf])
    for _ in range(n_repetitions):
        before = np.array([time.process_time(), time.perf_counter()])
        n_sweeps = job(n_threads)
        least = np.minimum(least, (np.array([time.process_time(), time.perf_counter()]) - before) / n_sweeps)
    return 1000 * least


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=1000)
    parser.add_argument("--states", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(f"{options.side} x {options.side}, {options.states} states; milliseconds a sweep, processor / wall")
    for potts in (True, False):
        for dtype in (np.float32, np.float64):
            model = random_field(options.side, options.states, potts, dtype)
            for name, job in jobs(model):
                cells = [milliseconds(job, n_threads) for n_threads in (1, 2)]
                times = "   ".join(f"{n} threads {cpu:6.1f} / {wall:6.1f}" for n, (cpu, wall) in enumerate(cells, 1))
                print(f"{'Potts' if potts else 'full ':5s} {np.dtype(dtype).name}  {name:20s} {times}")


if __name__ == "__main__":
    main()
