"""All ways of training on shards, on small data, to compare weights of engines and count bytes of evaluations."""

import pickle
from pathlib import Path

import numpy as np
from sklearn.base import clone

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
    Shards,
)
from sklearn_crf.distributed import ClusterExecutor
from sklearn_crf.distributed._clusters import Holder
from sklearn_crf.learning import ContrastiveTraining

N_SHARDS = 8
FIELD = {"edge_features": "constant", "max_iter": 6}
TREE = {"max_depth": 1, "max_iter": 4, "random_state": 0}

# All learning methods that use sums over shards, for grids with three classes
OF_LABELS = {
    **{
        f"TRWCRF, {name}": TRWCRF(learning=name, **FIELD)
        for name in (
            "exact",
            "relaxation",
            "reparameterization",
            "piecewise",
            "shared_pieces",
            "pseudolikelihood",
            "loopy",
            "mean_field",
        )
    },
    "DRFClassifier, likelihood": DRFClassifier(learning="likelihood", inference="junction_tree", **FIELD),
    "DRFClassifier, pma": DRFClassifier(learning="pma", **FIELD),
    "DRFClassifier, spa": DRFClassifier(learning="spa", inference="map", **FIELD),
    "DRFClassifier, spa as a convex problem": DRFClassifier(learning="spa", solver="bundle", inference="map", **FIELD),
    "DRFClassifier, mma": DRFClassifier(learning="mma", **FIELD),
    "DRFClassifier, pl": DRFClassifier(learning="pl", **FIELD),
    "DRFClassifier, cd": DRFClassifier(learning="cd", random_state=0, **FIELD),
    "M3NClassifier, bundle": M3NClassifier(solver="bmrm", **FIELD),
    "M3NClassifier, one slack": M3NClassifier(solver="one_slack", **FIELD),
    "M3NClassifier, subgradient": M3NClassifier(solver="subgradient", random_state=0, **FIELD),
    "M3NClassifier, smoothed": M3NClassifier(learning="smoothed_margin", edge_features="constant", max_iter=2),
    "ContrastiveCRF": ContrastiveCRF(learning=ContrastiveTraining(max_rounds=2), random_state=0, **FIELD),
}
OF_ROWS = {
    "MultiConditionalMFA, em": MultiConditionalMFA(
        2, objective="joint", noise="tied", n_init=1, max_iter=10, random_state=0
    ),
    "MultiConditionalMFA, gradients": MultiConditionalMFA(
        1, noise="tied", alpha=0.01, n_init=1, max_iter=10, random_state=0
    ),
}
OF_IMAGES = {
    **{
        f"RegressionTreeField, {loss}": RegressionTreeField(loss, **TREE)
        for loss in ("mse", "mae", "ssim", "pseudolikelihood", "likelihood")
    },
    **{
        f"RegressionTreeFieldClassifier, {loss}": RegressionTreeFieldClassifier(loss, **TREE)
        for loss in ("multinomial", "pseudolikelihood")
    },
}
WAYS = {**OF_LABELS, **OF_ROWS, **OF_IMAGES}


def data_of(name, seed):
    """Return X and y of a shard, in the form that a way of training needs."""
    rng = np.random.default_rng(seed)
    if name in OF_IMAGES:
        clean = np.kron(rng.random((2, 3, 3)), np.ones((4, 4)))
        noisy = (clean + 0.3 * rng.normal(size=clean.shape))[..., np.newaxis]
        return noisy, (3 * clean).astype(int) if "Classifier" in name else clean
    y = rng.integers(3, size=(5, 4, 4))
    X = np.eye(3)[y] + rng.normal(size=(5, 4, 4, 3))
    return (X.reshape(-1, 3), y.ravel()) if name in OF_ROWS else (X, y)


def write(folder, name):
    """Write the shards of a way of training, and return their paths."""
    paths = [Path(folder) / f"{name}, {seed}.npz".replace(" ", "_") for seed in range(N_SHARDS)]
    for seed, path in enumerate(paths):
        X, y = data_of(name, seed)
        np.savez(path, X=X, y=y)
    return paths


def load(path):
    with np.load(path) as part:
        return part["X"], part["y"]


def weights(fitted):
    """Return all learned weights as one vector."""
    if hasattr(fitted, "precisions_"):
        return np.concatenate([np.ravel(part) for part in (*fitted.precisions_, *fitted.weights_)])
    names = ("coef_", "intercept_", "edge_coef_") if hasattr(fitted, "coef_") else ("means_", "loadings_")
    return np.concatenate([np.ravel(getattr(fitted, name)) for name in names])


class Counting(ClusterExecutor):
    """Executor with actors in this process that records the bytes sent in calls that evaluate the loss."""

    name = "counting"

    def __init__(self, shards, n_actors):
        self.figures = []
        super().__init__(shards, n_actors)

    def sum(self, function, broadcast):
        n_bytes = bytes_of_weights(function, broadcast)
        if n_bytes is None:
            return super().sum(function, broadcast)
        self._out, self._back = [], []
        found = super().sum(function, broadcast)
        n_bytes += sum(_of_gradient(found)) if _name(function) == "_total" else n_bytes
        self.figures.append((max(self._out), max(self._back), n_bytes))
        return found

    def _dumps(self, data):
        buffers = []
        head = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
        return [head, *(np.frombuffer(buffer, np.uint8) for buffer in buffers)]

    def _replace(self, k):
        self._actors[k] = Holder(*self._held(k), 1)

    def _start(self, k, request):
        method, *arguments = request
        if method == "sums" and hasattr(self, "_out"):
            self._out.append(_bytes_of_message({"op": "actor_execute", "actor": 50 * "x", "function": method}, request))
        return getattr(self._actors[k], method)(*arguments)

    def _result(self, k, call):
        if hasattr(self, "_back"):
            self._back.append(_bytes_of_message({"status": "OK"}, call))
        return (call,)

    def _is_of_actor(self, error):
        return False

    _is_of_cluster = _is_of_actor


def bytes_of_weights(function, broadcast):
    """Return the bytes of the weights in a call that evaluates the loss, or None for other calls."""
    if _name(function) == "_total":
        return sum(_of_gradient(broadcast[2]))
    asked = broadcast[1] if isinstance(broadcast, tuple) and len(broadcast) == 2 else None
    if hasattr(asked, "coef"):
        return asked.coef.nbytes
    is_of_field = _name(getattr(asked, "function", None)) == "value_grad"
    return asked.arguments[0].nbytes if is_of_field else None


def _name(function):
    """Return the name of a function, or an empty text for partial functions."""
    return getattr(function, "__name__", "")


def _of_gradient(values):
    """Return the bytes of each array in some values."""
    buffers = []
    pickle.dumps(values, protocol=5, buffer_callback=buffers.append)
    return [buffer.raw().nbytes for buffer in buffers]


def _bytes_of_message(message, content):
    """Return the bytes of a message, as dask sends it."""
    from distributed.protocol import dumps, to_serialize
    from distributed.utils import nbytes

    return sum(map(nbytes, dumps(message | {"content": to_serialize(content)})))


def bytes_of(name, n_shards, n_actors):
    """Return the bytes sent to and from a worker in an evaluation, and the bytes of weights and gradient.

    They are of the evaluation after the first with the largest overhead.
    """
    executors = []

    def make(shards):
        executors.append(Counting(shards, n_actors))
        return executors[-1]

    parts = [data_of(name, seed) for seed in range(n_shards)]
    clone(WAYS[name]).fit(Shards.from_arrays(parts, make))
    return max(executors[0].figures[1:], key=lambda figures: figures[0] + figures[1] - 2 * figures[2])
