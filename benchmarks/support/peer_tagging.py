"""Tagging with dicts of features for ``peers.py``, by this package, sklearn-crfsuite and chaine."""

import warnings
from itertools import islice

import numpy as np

from support.peer_timing import timed

VOCABULARY = 20_000


def sentences(n_sentences, seed, n_tags=9):
    """Return sentences with named features of words, and tags drawn from a Markov chain."""
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
    """Return a function from a number of sentences to random training and test data."""

    def read(size):
        return sentences(size, 1, n_tags), sentences(max(size // 3, 100), 2, n_tags)

    return read


def chunks(size):
    """Return training and test data of CoNLL-2000, with features as in CRFsuite's documentation."""
    return read_chunks("train", size), read_chunks("test", size // 4)


def read_chunks(name, size):
    from support.conll_features import sentences as read

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
        # Modules that are loaded at first use count as imports, whose time and memory are not measured.
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

    # CRFsuite's penalty is c2 |w|^2, so c2=0.5 gives the same objective.
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
    """Return an entry for tagging. Losses of the packages are comparable, except for intercepts of this package."""
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
