"""Token features as dictionaries, the way taggers are fed, to sparse chains."""

from array import array
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from itertools import pairwise, repeat
from numbers import Number

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sklearn_crf.encoding import Example, object_array
from sklearn_crf.graphs import lattice


class SequenceVectorizer(TransformerMixin, BaseEstimator):
    """Sequences of tokens with named features to chains with sparse features.

    A token is what users of CRFsuite write: a mapping of names to values, or an iterable of names. A string value is
    one of several categories and gets the column ``name + separator + value`` with a one, a number goes to the column
    ``name`` (booleans as 0 and 1), a name in an iterable gets a one. Mappings may nest: a value that is a mapping or an
    iterable of strings has its names put behind its own.

    Parameters
    ----------
    dtype : dtype, default=float64
        float32 or float64.
    separator : str, default="="
        Between the name and the value of a category; names that nest are joined by ":".
    min_count : int, default=1
        Columns that fewer training tokens have are left out.
    edge_features : callable, optional
        ``f(token, next_token)`` that gives features of the edge between two neighbouring tokens, in the form of those
        of a token. Sequences then become :class:`~sklearn_crf.Example`, with sparse features of nodes and of edges.
        Edges have no constant term but for one that the function names, such as "bias".

    Attributes
    ----------
    vocabulary_ : dict
        Column of each name, in the order of their first occurrence.
    n_columns_ : int
        Number of columns.
    edge_vocabulary_ : dict
        The same for the features of edges. Only with ``edge_features``.

    See Also
    --------
    sklearn.feature_extraction.DictVectorizer : For single tokens.

    Examples
    --------
    >>> from sklearn_crf.preprocessing import SequenceVectorizer
    >>> sentences = [[{"word": "to", "upper": False}, {"word": "Rome", "upper": True}], [["word=to", "last"]]]
    >>> chains = SequenceVectorizer().fit_transform(sentences)
    >>> chains[0].toarray()
    array([[1., 0., 0., 0.],
           [0., 1., 1., 0.]])
    >>> chains[1].toarray()
    array([[1., 0., 0., 1.]])
    """

    def __init__(self, dtype=np.float64, separator="=", min_count=1, edge_features=None):
        self.dtype = dtype
        self.separator = separator
        self.min_count = min_count
        self.edge_features = edge_features

    def fit(self, X, y=None):
        """Learn the columns.

        Parameters
        ----------
        X : iterable of sequences of tokens
        y : object, optional
            Ignored.

        Returns
        -------
        SequenceVectorizer
            self
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X, y=None):
        """Learn the columns and transform, in one pass: ``X`` may be a generator.

        Parameters
        ----------
        X : iterable of sequences of tokens
        y : object, optional
            Ignored.

        Returns
        -------
        ndarray of shape (n_sequences,), of object
            A CSR matrix ``(n_tokens, n_columns)`` each, or an Example.

        Raises
        ------
        ValueError
            If a sequence is empty, a token is neither mapping nor iterable of strings, or a value is neither string
            nor finite number.
        """
        if self.min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {self.min_count!r}.")
        if self.edge_features is None:
            self.vocabulary_, chains = self._learn(X)
        else:
            X = [list(sequence) for sequence in X]
            self.vocabulary_, chains = self._learn(X)
            self.edge_vocabulary_, edges = self._learn(self._pairs_of_tokens(X), shortest=0)
            chains = _examples(chains, edges)
        self.n_columns_ = len(self.vocabulary_)
        return chains

    def _learn(self, X, shortest=1):
        """Columns by name, and the sequences."""
        vocabulary = defaultdict()
        vocabulary.default_factory = vocabulary.__len__  # a name that is new gets the next column
        columns, values, token_ptr, lengths = self._read(X, partial(map, vocabulary.__getitem__), shortest)
        vocabulary = dict(vocabulary)
        if not lengths:
            raise ValueError("X holds no sequence: at least one is needed to learn the columns.")
        if self.min_count > 1:
            kept = np.bincount(columns, minlength=len(vocabulary)) >= self.min_count
            new = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
            vocabulary = {name: int(new[column]) for name, column in vocabulary.items() if kept[column]}
            columns, values, token_ptr = _without_unknown(new[columns], values, token_ptr)
        return vocabulary, _chains(columns, values, token_ptr, lengths, len(vocabulary))

    def _pairs_of_tokens(self, X):
        return ([self.edge_features(*pair) for pair in pairwise(sequence)] for sequence in X)

    def transform(self, X):
        """Chains with the columns of training; names that training did not have are left out.

        Parameters
        ----------
        X : iterable of sequences of tokens

        Returns
        -------
        ndarray of shape (n_sequences,), of object
            A CSR matrix ``(n_tokens, n_columns)`` each, or an Example.
        """
        check_is_fitted(self)
        if self.edge_features is None:
            return self._look_up(X, self.vocabulary_)
        X = [list(sequence) for sequence in X]
        edges = self._look_up(self._pairs_of_tokens(X), self.edge_vocabulary_, shortest=0)
        return _examples(self._look_up(X, self.vocabulary_), edges)

    def _look_up(self, X, vocabulary, shortest=1):
        column_or_none = vocabulary.get
        columns, values, token_ptr, lengths = self._read(
            X, lambda names: map(column_or_none, names, repeat(-1)), shortest
        )
        return _chains(*_without_unknown(columns, values, token_ptr), lengths, len(vocabulary))

    def get_feature_names_out(self, input_features=None):
        """Names of the columns.

        Parameters
        ----------
        input_features : object, optional
            Ignored.

        Returns
        -------
        ndarray of shape (n_columns,), of str
        """
        check_is_fitted(self)
        return np.array(list(self.vocabulary_), dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.dict = True
        return tags

    def _read(self, X, columns_of, shortest):
        """Columns and values of all tokens in turn, where each token ends, the number of tokens of each sequence."""
        if isinstance(X, str | Mapping):
            raise ValueError(f"X must be an iterable of sequences of tokens, got a {type(X).__name__}.")
        columns, values = array("i"), array("d")
        ends, lengths = array("q", [0]), []
        for i, sequence in enumerate(X):
            n_before = len(ends)
            for t, token in enumerate(sequence):
                try:
                    names, numbers = self._named_values(token)
                except TypeError as error:
                    raise ValueError(f"X[{i}][{t}]: {error}") from error
                columns.extend(columns_of(names))
                values.extend(numbers)
                ends.append(len(columns))
            lengths.append(len(ends) - n_before)
            if lengths[-1] < shortest:
                raise ValueError(f"X[{i}] is empty: every sequence needs a token.")
        values = np.frombuffer(values, dtype=np.float64).astype(self.dtype, copy=False)
        if not np.all(np.isfinite(values)):
            raise ValueError("X contains NaN or infinity.")
        return np.frombuffer(columns, dtype=np.int32), values, np.frombuffer(ends, dtype=np.int64), lengths

    def _named_values(self, token):
        """Names of the columns of a token, and an array of their values."""
        if type(token) is not list and isinstance(token, Mapping):
            names, numbers = [], array("d")
            self._add_mapping(token, "", names, numbers)
            return names, numbers
        names = _as_names(token)
        return names, _ones(len(names))

    def _add_mapping(self, token, prefix, names, numbers):
        for name, value in token.items():
            if isinstance(value, str):
                names.append(f"{prefix}{name}{self.separator}{value}")
                numbers.append(1.0)
            elif isinstance(value, Number):
                names.append(f"{prefix}{name}")
                numbers.append(value)
            elif isinstance(value, Mapping):
                self._add_mapping(value, f"{prefix}{name}:", names, numbers)
            else:
                inner = _as_names(value)
                names.extend(f"{prefix}{name}:{part}" for part in inner)
                numbers.extend(_ones(len(inner)))


def _chains(columns, values, token_ptr, lengths, n_columns):
    chains, first = [], 0
    for length in lengths:
        ptr = token_ptr[first : first + length + 1]
        part = slice(ptr[0], ptr[-1])
        arrays = values[part], columns[part], (ptr - ptr[0]).astype(np.int32)
        chains.append(sp.csr_matrix(arrays, shape=(length, n_columns)))
        first += length
    return object_array(chains)


def _examples(chains, edges):
    graphs = {n: lattice((n,)) for n in {chain.shape[0] for chain in chains}}
    return object_array(
        [Example(chain, graphs[chain.shape[0]], part) for chain, part in zip(chains, edges, strict=True)]
    )


def _without_unknown(columns, values, token_ptr):
    """The entries whose column is not negative."""
    known = columns >= 0
    if known.all():
        return columns, values, token_ptr
    return columns[known], values[known], np.concatenate(([0], np.cumsum(known)))[token_ptr]


def _as_names(token):
    if type(token) is not list and (isinstance(token, str) or not hasattr(token, "__iter__")):
        raise TypeError(f"features must be a mapping or an iterable of strings, got {token!r}.")
    names = token if type(token) is list else list(token)
    for kind in set(map(type, names)):
        if not issubclass(kind, str):
            other = next(name for name in names if type(name) is kind)
            raise TypeError(f"a feature in an iterable must be a string, got {other!r}.")
    return names


def _ones(length):
    return _ONES[:length] if length <= len(_ONES) else array("d", [1.0]) * length


_ONES = array("d", [1.0]) * 1000
