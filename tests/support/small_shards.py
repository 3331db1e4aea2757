"""Loaders of small shards, which worker processes import, and helpers that return learned weights."""

import numpy as np

from sklearn_crf.distributed import LocalExecutor


class Watching:
    """Mixin of executors that calls ``before(function, broadcast)`` before each call of a function on all shards."""

    def map(self, function, broadcast):
        self.before(function, broadcast)
        return super().map(function, broadcast)

    def sum(self, function, broadcast):
        self.before(function, broadcast)
        return super().sum(function, broadcast)


class LosesShards(Watching, LocalExecutor):
    """Executor that drops a shard from memory before every third call, so that the shard is loaded again."""

    n_calls = 0

    def before(self, function, broadcast):
        self.n_calls += 1
        if not self.n_calls % 3:
            shard = self.shards[self.n_calls % len(self.shards)]
            shard.cache.clear()
            shard.memory.clear()


def load(seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=(4, 4, 4))
    return np.eye(3)[y] + rng.normal(size=(4, 4, 4, 3)), y


def broken(seed):
    if seed == 1:
        raise OSError("no such file")
    return load(seed)


def weights(estimator):
    return np.concatenate([np.ravel(getattr(estimator, name)) for name in ("coef_", "intercept_", "edge_coef_")])


def images(seed):
    """Return noisy images of squares, and the clean images."""
    rng = np.random.default_rng(seed)
    clean = np.kron(rng.random((3, 4, 4)), np.ones((4, 4)))
    return (clean + 0.3 * rng.normal(size=clean.shape))[..., np.newaxis], clean


def labelled_images(seed):
    X, clean = images(seed)
    return X, (3 * clean).astype(int)


def leaves(field):
    """Return all learned parameters of a regression tree field, as a vector."""
    return np.concatenate([np.ravel(part) for part in (*field.precisions_, *field.weights_, *field.slopes_)])


def sentences(seed):
    """Return sentences of tokens with named features, and their tags."""
    rng = np.random.default_rng(seed)
    y = [rng.integers(3, size=n) for n in rng.integers(1, 7, size=20)]
    words = np.array(["a", "to", "Rome", "boats", "row", "x", "seldom"])
    X = []
    for labels in y:
        drawn = words[(2 * labels + rng.integers(2 + (rng.random() < 0.2), size=len(labels))) % len(words)]
        X.append([{"word": word, "shard": str(seed), "long": len(word) > 3, "bias": 1.0} for word in drawn.tolist()])
    return X, y


def neighbours(token, following):
    return {"pair": f"{token['word']} {following['word']}"}
