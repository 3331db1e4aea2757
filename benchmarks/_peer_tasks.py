"""What ``peers.py`` measures: the same work by this package and by a peer, each side on the same data.

A side is a function ``run(size, n_jobs)`` that makes its data and gives the times of its steps, (clock, processor)
each, and the quality of its answer. It runs in a process of its own.
"""

import time
import warnings
from importlib import import_module
from itertools import islice

import numpy as np
from _memory import forget_peak, peak_megabytes

VOCABULARY = 20_000


# Memory of this process before the first step that is timed.
before = []


def timed(job, repetitions=1, at_least=0.0):
    """Least (clock, processor) seconds of so many runs, or of more until they took ``at_least``; the last result."""
    if not before:
        # What making the data took for a while is no room for the work.
        forget_peak()
        before.append(peak_megabytes())
    times = []
    while len(times) < repetitions or np.sum(times, axis=0)[1] < at_least:
        start = time.perf_counter(), time.process_time()
        result = job()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return np.min(times, axis=0).tolist(), result


# Tagging from dictionaries


def sentences(n_sentences, seed, n_tags=9):
    """Features of words by name, and tags that follow a Markov chain."""
    rng = np.random.default_rng(0)
    by_word = rng.dirichlet(np.full(n_tags, 0.1), VOCABULARY)
    to_next = rng.dirichlet(np.full(n_tags, 0.5), n_tags)
    by_tag = by_word / np.arange(1, VOCABULARY + 1)[:, None]
    by_tag = np.cumsum(by_tag / by_tag.sum(axis=0), axis=0)
    rng = np.random.default_rng(seed)
    X, y = [], []
    for length in rng.integers(5, 40, n_sentences):
        tag, tags, words = int(rng.integers(n_tags)), [], []
        for _ in range(length):
            tag = int(rng.choice(n_tags, p=to_next[tag]))
            tags.append(f"T{tag}")
            words.append(f"w{int(np.searchsorted(by_tag[:, tag], rng.random() * 0.999999))}")
        X.append([token_features(words, t) for t in range(length)])
        y.append(tags)
    return X, y


def token_features(words, t):
    word = words[t]
    features = {"bias": 1.0, "word": word, "suffix3": word[-3:], "suffix2": word[-2:], "long": len(word) > 4}
    if t:
        features |= {"-1:word": words[t - 1], "-1:suffix2": words[t - 1][-2:]}
    else:
        features["first"] = True
    if t + 1 < len(words):
        features |= {"+1:word": words[t + 1], "+1:suffix2": words[t + 1][-2:]}
    else:
        features["last"] = True
    return features


def artificial(n_tags):
    """Training and test data of a number of sentences."""

    def read(size):
        return sentences(size, 1, n_tags), sentences(max(size // 3, 100), 2, n_tags)

    return read


def chunks(size):
    """The same of CoNLL-2000, with features as CRFsuite's users write them."""
    return read_chunks("train", size), read_chunks("test", size // 4)


def read_chunks(name, size):
    from chain_speed import sentences as read

    some = list(islice(read(name), size))
    features = [[chunk_features(sentence, t) for t in range(len(sentence))] for sentence in some]
    return features, [[tag for _, _, tag in sentence] for sentence in some]


def chunk_features(sentence, t):
    word, pos, _ = sentence[t]
    features = {"bias": 1.0, "word": word.lower(), "suffix3": word[-3:], "suffix2": word[-2:], "pos": pos}
    features |= {"upper": word.isupper(), "title": word.istitle(), "digit": word.isdigit()}
    if t:
        features |= {"-1:word": sentence[t - 1][0].lower(), "-1:pos": sentence[t - 1][1]}
    else:
        features["first"] = True
    if t + 1 < len(sentence):
        features |= {"+1:word": sentence[t + 1][0].lower(), "+1:pos": sentence[t + 1][1]}
    else:
        features["last"] = True
    return features


def tagging(make, as_labels, loss_of, read):
    def run(size, n_jobs):
        warnings.simplefilter("ignore")
        (X, y), (Z, truth) = read(size)
        # What is loaded when it is first used belongs to the imports, whose time and memory do not count.
        tiny = make(n_jobs)
        tiny.fit(X[:20], as_labels(y[:20]))
        tiny.predict(Z[:20])
        model = make(n_jobs)
        fit, _ = timed(lambda: model.fit(X, as_labels(y)))
        predict, found = timed(lambda: model.predict(Z), 3, at_least=0.2)
        right = sum(np.sum(np.asarray(a) == np.asarray(b)) for a, b in zip(found, truth, strict=True))
        return {"fit": fit, "predict": predict}, {"accuracy": right / sum(map(len, truth)), "loss": loss_of(model)}

    return run


def our_tagger(n_jobs):
    from sklearn.pipeline import make_pipeline

    from sklearn_crf import TRWCRF
    from sklearn_crf.preprocessing import SequenceVectorizer

    return make_pipeline(SequenceVectorizer(), TRWCRF(max_iter=100, n_jobs=n_jobs))


def crfsuite_tagger(n_jobs):
    import sklearn_crfsuite

    # The same objective: CRFsuite's penalty is c2 |w|^2.
    return sklearn_crfsuite.CRF(algorithm="lbfgs", c2=0.5, max_iterations=100)


def chaine_tagger(n_jobs):
    import chaine

    class Tagger:
        def fit(self, X, y):
            self.model = chaine.train(X, y, max_iterations=100, c2=0.5, verbose=0)

        def predict(self, X):
            return self.model.predict(X)

    return Tagger()


def tagging_task(read, sizes):
    """An entry of ``TASKS``. Losses are of one objective, but for our intercepts."""
    ours = tagging(our_tagger, lambda y: [np.array(tags) for tags in y], lambda model: model[-1].loss_curve_[-1], read)
    crfsuite = tagging(crfsuite_tagger, list, lambda model: model.training_log_.last_iteration["loss"], read)
    chaine = tagging(chaine_tagger, list, lambda model: np.nan, read)
    return ours, sizes, {"sklearn_crfsuite": crfsuite, "chaine": chaine}


def our_conversion(size, n_jobs):
    from sklearn_crf.preprocessing import SequenceVectorizer

    X, _ = sentences(size, 1)
    fit, vectorizer = timed(lambda: SequenceVectorizer().fit(X), 3)
    return {"fit": fit, "transform": timed(lambda: vectorizer.transform(X), 3)[0]}, {}


def crfsuite_conversion(size, n_jobs):
    import pycrfsuite

    X, y = sentences(size, 1)

    def append():
        trainer = pycrfsuite.Trainer(verbose=False)
        for tokens, tags in zip(X, y, strict=True):
            trainer.append(tokens, tags)

    items = timed(lambda: [pycrfsuite.ItemSequence(tokens) for tokens in X], 3)[0]
    return {"fit": timed(append, 3)[0], "transform": items}, {}


# Plain rows


def rows(size, seed):
    from sklearn.datasets import make_classification

    X, y = make_classification(2 * size, 40, n_informative=20, n_classes=5, random_state=seed)
    return X[:size], y[:size], X[size:], y[size:]


def classifier(make):
    def run(size, n_jobs):
        warnings.simplefilter("ignore")
        X, y, Z, truth = rows(size, 0)
        model = make(n_jobs)
        fit, _ = timed(lambda: model.fit(X, y))
        predict, found = timed(lambda: model.predict(Z), 3, at_least=0.2)
        return {"fit": fit, "predict": predict}, {"accuracy": float(np.mean(found == truth))}

    return run


def our_classifier(n_jobs):
    from sklearn_crf import TRWCRF

    return TRWCRF(max_iter=200, n_jobs=n_jobs)


def logistic_regression(n_jobs):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=200)


# Minimum cuts


# Penalties of unlike neighbours, by connectivity: 6 and 26 neighbours.
COUPLING = {1: 400.0, 3: 100.0}


def volume(size):
    rng = np.random.default_rng(0)
    return (1000 * rng.normal(size=(size, size, size))).round()


def our_cut(connectivity):
    def run(size, n_jobs):
        from sklearn_crf.graphs import lattice
        from sklearn_crf.inference import GraphCut
        from sklearn_crf.models import PairwiseModel

        cost, coupling = volume(size), COUPLING[connectivity]

        def solve():
            unary = np.stack((np.zeros(cost.size), -cost.ravel()), axis=1)
            model = PairwiseModel(lattice(cost.shape, connectivity), unary, coupling * np.eye(2)[None])
            return GraphCut().map(model, n_threads=n_jobs)

        seconds, found = timed(solve, 2)
        labels = found.labels.reshape(cost.shape)
        return {"map": seconds}, {"energy": energy(cost, connectivity, labels)}

    return run


def maxflow_cut(connectivity):
    def run(size, n_jobs):
        import maxflow

        cost, coupling = volume(size), COUPLING[connectivity]
        # One of each two opposite neighbours: each edge is added once, with both directions.
        structure = np.zeros((3, 3, 3))
        for offset in offsets(connectivity):
            structure[tuple(offset + 1)] = 1

        def solve():
            graph = maxflow.Graph[float](cost.size, int(structure.sum()) * cost.size)
            nodes = graph.add_grid_nodes(cost.shape)
            graph.add_grid_edges(nodes, coupling, structure, symmetric=True)
            graph.add_grid_tedges(nodes, np.maximum(cost, 0), np.maximum(-cost, 0))
            graph.maxflow()
            return graph.get_grid_segments(nodes)

        # Whether its True is our 1 does not matter to the time; the better reading is its energy.
        seconds, found = timed(solve, 2)
        readings = found, ~found
        return {"map": seconds}, {"energy": min(energy(cost, connectivity, labels.astype(int)) for labels in readings)}

    return run


def offsets(connectivity):
    from sklearn_crf.graphs import lattice_offsets

    return lattice_offsets(3, connectivity)


def energy(cost, connectivity, labels):
    n_cut = 0
    for offset in offsets(connectivity):
        tail = tuple(
            slice(max(-step, 0), length - max(step, 0)) for step, length in zip(offset, cost.shape, strict=True)
        )
        head = tuple(
            slice(max(step, 0), length + min(step, 0)) for step, length in zip(offset, cost.shape, strict=True)
        )
        n_cut += np.count_nonzero(labels[tail] != labels[head])
    return float(cost[labels == 1].sum() + COUPLING[connectivity] * n_cut)


# Imports


CLASSIFIERS = ("TRWCRF", "DRFClassifier", "M3NClassifier", "ContrastiveCRF")


def our_import(size, n_jobs):
    """So many classifiers, beside what scikit-learn's own have loaded already."""
    import sklearn.linear_model  # noqa: F401

    import sklearn_crf

    return {"import": timed(lambda: [getattr(sklearn_crf, name) for name in CLASSIFIERS[:size]])[0]}, {}


def sklearn_import(size, n_jobs):
    return {"import": timed(lambda: import_module("sklearn.linear_model"))[0]}, {}


# Those that read the folder SKLEARN_CRF_DATA.
NEED_DATA = {"CoNLL-2000"}

# (our side, sizes, peers by the name of their package)
TASKS = {
    "classifiers": (our_import, (1, len(CLASSIFIERS)), {"sklearn": sklearn_import}),
    "dict features": (our_conversion, (1000, 3000), {"pycrfsuite": crfsuite_conversion}),
    "tagging from dicts": tagging_task(artificial(9), (500, 1500, 4000)),
    "60 tags": tagging_task(artificial(60), (300,)),
    "CoNLL-2000": tagging_task(chunks, (3000,)),
    "rows": (classifier(our_classifier), (20_000,), {"sklearn": classifier(logistic_regression)}),
    "cut of a volume": (our_cut(1), (64,), {"maxflow": maxflow_cut(1)}),
    "cut, 26 neighbours": (our_cut(3), (64,), {"maxflow": maxflow_cut(3)}),
}
