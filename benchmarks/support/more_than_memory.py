"""Train on copies of CoNLL-2000 with gigabytes of features on disk, in a process with limited memory."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.random_projection import SparseRandomProjection

from sklearn_crf import TRWCRF, Shards
from sklearn_crf.preprocessing import SequenceVectorizer
from support.conll_features import sentences, token_features
from support.memory import peak_megabytes

N_ITERATIONS, N_FEATURES = 3, 300

# Number of shards of each copy of the training data, such that a shard takes a small part of the memory
N_PARTS = 2


def load(path):
    with np.load(path) as part:
        X, y, ends = part["X"], part["y"], np.cumsum(part["lengths"])
    rows = [slice(end - length, end) for end, length in zip(ends, np.diff(ends, prepend=0), strict=True)]
    return [X[own] for own in rows], [y[own] for own in rows]


def write(folder, n_bytes):
    """Write copies of the training sentences, each in a different order, until their features have ``n_bytes`` bytes.

    Returns the paths of the shards and the bytes of the features of a shard.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokens = list(sentences("train"))
    names = SequenceVectorizer(min_count=3).fit_transform(token_features(sentence) for sentence in tokens)
    X = SparseRandomProjection(N_FEATURES, dense_output=True, random_state=0).fit_transform(sp.vstack(list(names)))
    y = np.array([word[2] for sentence in tokens for word in sentence])
    lengths = np.array([len(sentence) for sentence in tokens])
    rows = np.split(np.arange(len(y)), np.cumsum(lengths)[:-1])
    paths = []
    for copy in range(-(-n_bytes // X.nbytes)):
        order = np.random.default_rng(copy).permutation(len(tokens))
        for k, members in enumerate(np.array_split(order, N_PARTS)):
            paths.append(folder / f"part{N_PARTS * copy + k:03d}.npz")
            if paths[-1].exists():
                continue
            chosen = np.concatenate([rows[i] for i in members])
            half = paths[-1].with_suffix(".half.npz")
            np.savez(half, X=X[chosen], y=y[chosen], lengths=lengths[members])
            half.rename(paths[-1])
    return paths, X.nbytes / N_PARTS


def trained(paths, n_iterations):
    # Training on n copies with C / n has the same optimum as training on one copy with C.
    return TRWCRF(C=N_PARTS / len(paths), max_iter=n_iterations, tol=0).fit(Shards(paths, load))


def measure(folder, limit, n_shards, n_iterations):
    """Train within a limit on the address space, and print figures as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    paths = sorted(Path(folder).glob("part???.npz"))[:n_shards]
    start, clock = time.process_time(), time.perf_counter()
    field = trained(paths, n_iterations)
    np.save(Path(folder) / f"weights{n_shards}.npy", field.coef_)
    status = Path("/proc/self/status").read_text(encoding="ascii").split("\n")
    status = dict(line.split(":", 1) for line in status if ":" in line)
    figures = {
        "n_iter": field.n_iter_,
        "n_coef": int(field.coef_.size + field.edge_coef_.size),
        "loss": float(field.loss_curve_[-1]),
        "cpu_seconds": round(time.process_time() - start),
        "seconds": round(time.perf_counter() - clock),
        "peak_resident_gb": round(peak_megabytes() / 1024, 2),
        "peak_address_space_gb": round(int(status["VmPeak"].split()[0]) / 2**20, 2),
    }
    print(json.dumps(figures))


def show(folder, n_bytes, limit, n_iterations=N_ITERATIONS):
    """Return figures of a run on ``n_bytes`` bytes, and differences from weights trained on one copy."""
    folder = Path(folder)
    paths, size = write(folder, n_bytes)
    figures = {"n_shards": len(paths), "features_gb": round(len(paths) * size / 1e9, 2), "limit_gb": limit / 1e9}
    code = f"import support.more_than_memory as m; m.measure({str(folder)!r}, {limit}, {len(paths)}, {n_iterations})"
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-P", "-W", "ignore", "-c", code]  # -P: use the installed package
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures |= json.loads(done.stdout)
    one = trained(paths[:N_PARTS], n_iterations)
    many = np.load(folder / f"weights{len(paths)}.npy")
    figures["loss_of_one_copy"] = float(one.loss_curve_[-1])
    figures["largest_difference_of_weights"] = float(np.abs(many - one.coef_).max())
    figures["largest_weight"] = float(np.abs(many).max())
    return figures
