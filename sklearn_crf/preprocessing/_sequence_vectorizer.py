"""Conversion of tokens with named features to sparse chains."""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from numbers import Integral
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils._param_validation import Interval, InvalidParameterError
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._fits import fits
from sklearn_crf._numbers import check_option
from sklearn_crf._options import options
from sklearn_crf._versions import get_versioned_state, restore_versioned_state
from sklearn_crf.distributed import Shard, Shards
from sklearn_crf.encoding import Example, make_object_array
from sklearn_crf.graphs import lattice
from sklearn_crf.preprocessing._feature_dicts import read_tokens

Token: TypeAlias = Mapping[str, Any] | Iterable[str]
Sequences: TypeAlias = Iterable[Iterable[Token]]


@options(kw_only=False)
class SequenceVectorizer(TransformerMixin, BaseEstimator):
    """Convert sequences of tokens with named features to chains with sparse features.

    A token has the form that CRFsuite uses: a mapping of names to values, or an iterable of names. A string value is a
    category and gets a one in the column ``name + separator + value``. A number is stored in the column ``name``
    (booleans as 0 and 1). A name in an iterable gets a one. Mappings may be nested: if a value is a mapping or an
    iterable of strings, its names are appended to the outer name. Zeros are not stored.

    For :class:`~sklearn_crf.Shards`, each shard returns its names and their counts in one pass. Columns are ordered by
    first occurrence over the shards in order. Columns are the same as for data in memory, for any number of workers.

    Parameters
    ----------
    dtype : dtype, default=float64
        Precision of the values, float32 or float64.
    separator : str, default="="
        Text between the name and the value of a category; nested names are joined by ":".
    min_count : int, default=1
        Columns that occur in fewer training tokens are dropped.
    edge_features : callable, optional
        ``f(token, next_token)`` returns features of the edge between two neighbouring tokens, in the form of a token.
        Sequences then become :class:`~sklearn_crf.Example`, with sparse features of nodes and of edges.
        Edges have no constant term unless the function adds one, such as "bias".

    Attributes
    ----------
    vocabulary_ : dict
        Column of each name, in the order of first occurrence.
    n_columns_ : int
        Number of columns.
    edge_vocabulary_ : dict
        Column of each name of edge features. Only with ``edge_features``.

    See Also
    --------
    sklearn.feature_extraction.DictVectorizer : Converts single tokens.

    Examples
    --------
    >>> from sklearn_crf.preprocessing import SequenceVectorizer
    >>> sentences = [
    ...     [{"word": "to", "upper": False}, {"word": "Rome", "upper": True}],
    ...     [["word=to", "last"]],
    ... ]
    >>> chains = SequenceVectorizer().fit_transform(sentences)
    >>> chains[0].toarray()
    array([[1., 0., 0., 0.],
           [0., 1., 1., 0.]])
    >>> chains[1].toarray()
    array([[1., 0., 0., 1.]])
    """

    __getstate__ = get_versioned_state
    __setstate__ = restore_versioned_state

    def _check_fitted(self) -> None:
        """Raise ValueError unless the vocabularies number their names from 0."""
        # The parameter ``edge_features`` may have changed since the fit, so it does not tell whether edges have names.
        of_edges = getattr(self, "edge_vocabulary_", {})
        for name, vocabulary in (("vocabulary_", self.vocabulary_), ("edge_vocabulary_", of_edges)):
            if {*map(type, vocabulary)} - {str} or list(vocabulary.values()) != list(range(len(vocabulary))):
                raise ValueError(f"{name} must be a dict that numbers strings from 0.")
        check_option(getattr(self, "_separator", ""), "_separator", bool, "be text", kind=str)

    _parameter_constraints: ClassVar[dict] = {
        "dtype": "no_validation",
        "separator": [str],
        "min_count": [Interval(Integral, 1, None, closed="left")],
        "edge_features": [callable, None],
    }
    dtype: DTypeLike = np.float64
    separator: str = "="
    min_count: int = 1
    edge_features: Callable[[Token, Token], Token] | None = None

    def fit(self, X: Sequences | Shards, y: object = None) -> Self:
        """Learn the columns from the names in X.

        Parameters
        ----------
        X : iterable of sequences of tokens, or Shards
        y : object, optional
            Ignored.

        Returns
        -------
        SequenceVectorizer
            self
        """
        self.fit_transform(X)
        return self

    @fits
    def fit_transform(self, X: Sequences | Shards, y: object = None) -> np.ndarray | Shards:
        """Learn the columns and transform X in one pass; ``X`` may be a generator.

        Parameters
        ----------
        X : iterable of sequences of tokens, or Shards
        y : object, optional
            Ignored.

        Returns
        -------
        ndarray of shape (n_sequences,), of object
            For each sequence a CSR matrix ``(n_tokens, n_columns)`` or an Example. For Shards, transformed Shards.

        Raises
        ------
        ValueError
            If a token is neither a mapping nor an iterable of strings, or a value is not a string, a finite number, a
            mapping or an iterable of strings. The error names the token and the feature.
        """
        self._check_parameters()
        self.__dict__.pop("edge_vocabulary_", None)
        self._separator = self.separator
        if isinstance(X, Shards):
            self._learn_from_shards(X)
            return self.transform(X)
        if self.edge_features is None:
            vocabulary, chains = self._learn(X)
        else:
            X = [list(sequence) for sequence in X]
            vocabulary, chains = self._learn(X)
            self.edge_vocabulary_, edges = self._learn(_iterate_pair_features(self.edge_features, X))
            chains = _examples(chains, edges)
        self.vocabulary_ = vocabulary
        return chains

    @property
    def n_columns_(self) -> int:
        """Number of columns."""
        return len(self.vocabulary_)

    def _check_parameters(self) -> None:
        """Raise InvalidParameterError for invalid parameters, which users may also set after ``fit``."""
        self._validate_params()
        try:
            is_float = np.dtype(self.dtype) in (np.float32, np.float64)
        except TypeError:
            is_float = False
        if not is_float:
            raise InvalidParameterError(f"dtype must be float32 or float64, got {self.dtype!r}.")

    def _learn(self, X):
        """Learn the vocabulary from sequences; return the vocabulary and the chains."""
        vocabulary: dict[str, int] = {}
        columns, values, token_ptr, lengths = self._read(X, vocabulary, learns=True)
        if not len(lengths):
            raise ValueError("X contains no sequence: at least one is needed to determine the columns.")
        if self.min_count > 1:
            kept = np.bincount(columns, minlength=len(vocabulary)) >= self.min_count
            new = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
            vocabulary = {name: int(new[column]) for name, column in vocabulary.items() if kept[column]}
            is_kept = kept[columns]
            token_ptr = np.concatenate(([0], np.cumsum(is_kept)))[token_ptr]
            columns, values = new[columns[is_kept]], None if values is None else values[is_kept]
        return vocabulary, self._build_chains(columns, values, token_ptr, lengths, len(vocabulary))

    def _learn_from_shards(self, shards):
        """Learn the vocabulary from the names that each shard returns."""
        # Send a clone, because a fitted estimator would also send the vocabulary.
        of_nodes, of_edges, n_sequences = zip(*shards.map(_count_shard_names, clone(self)), strict=True)
        if not sum(n_sequences):
            raise ValueError("X contains no sequence: at least one is needed to determine the columns.")
        if self.edge_features is not None:
            self.edge_vocabulary_ = _join_vocabulary(of_edges, self.min_count)
        self.vocabulary_ = _join_vocabulary(of_nodes, self.min_count)

    def _count_names(self, X):
        """Return the names in the order of first occurrence, paired with token counts, and the number of sequences."""
        vocabulary: dict[str, int] = {}
        columns, _, _, lengths = self._read(X, vocabulary, learns=True)
        return (list(vocabulary), np.bincount(columns, minlength=len(vocabulary))), len(lengths)

    def transform(self, X: Sequences | Shards) -> np.ndarray | Shards:
        """Convert sequences to chains with the columns learned in ``fit``; unknown names are dropped.

        Parameters
        ----------
        X : iterable of sequences of tokens, or Shards

        Returns
        -------
        ndarray of shape (n_sequences,), of object
            For each sequence a CSR matrix ``(n_tokens, n_columns)`` or an Example. For Shards, Shards that are
            transformed whenever a shard is loaded.
        """
        check_is_fitted(self)
        self._check_parameters()
        if hasattr(self, "edge_vocabulary_") != (self.edge_features is not None):
            raise InvalidParameterError("edge_features was set or removed after fit: fit the vectorizer again.")
        if isinstance(X, Shards):
            return X.transformed(self)
        if self.edge_features is None:
            return self._look_up(X, self.vocabulary_)
        X = [list(sequence) for sequence in X]
        edges = self._look_up(_iterate_pair_features(self.edge_features, X), self.edge_vocabulary_)
        return _examples(self._look_up(X, self.vocabulary_), edges)

    def _look_up(self, X, vocabulary):
        read = self._read(X, vocabulary, learns=False)
        return self._build_chains(*read, len(vocabulary))

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Return the names of the columns.

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

    def _read(self, X, vocabulary, *, learns):
        """Return the columns and values of all tokens in order, where each token ends, and the length of each sequence.

        None replaces the values if all of them are one.
        """
        if isinstance(X, str | Mapping):
            raise ValueError(f"X must be an iterable of sequences of tokens, got a {type(X).__name__}.")
        if isinstance(X, list | tuple) and any(isinstance(sequence, Mapping) for sequence in X[:1]):
            raise ValueError("X is one sequence, a list of dicts of features: pass a list of sequences, such as [X].")
        largest = float(np.finfo(self.dtype).max)
        separator = self.separator if learns else getattr(self, "_separator", self.separator)
        columns, values, token_ptr, lengths = read_tokens(X, vocabulary, separator, learns, largest)
        return columns, None if values is None else values.astype(self.dtype, copy=False), token_ptr, lengths

    def _build_chains(self, columns, values, token_ptr, lengths, n_columns):
        """Return a CSR matrix for each sequence."""
        first = np.cumsum(lengths) - lengths
        sequence = np.repeat(np.arange(len(lengths)), lengths + 1)
        # Each sequence has one more row pointer than it has tokens.
        token = np.arange(len(sequence)) - sequence
        ptr = (token_ptr[token] - token_ptr[first][sequence]).astype(np.int32)
        bounds = token_ptr[np.append(first, len(token_ptr) - 1)].tolist()
        template = sp.csr_matrix((1, n_columns), dtype=self.dtype).__dict__
        # If all values are one, matrices share a read-only array of ones, which saves a third of the memory.
        ones = np.ones(int(np.diff(bounds).max(initial=0)), dtype=self.dtype)
        ones.flags.writeable = False
        chains, start = [], 0
        make, matrix = sp.csr_matrix.__new__, sp.csr_matrix
        for n, (first, last) in zip(lengths.tolist(), pairwise(bounds), strict=True):
            # Setting attributes is much faster than the constructor, whose checks are not needed.
            chain = make(matrix)
            chain.__dict__ = {
                **template,
                "data": ones[: last - first] if values is None else values[first:last],
                "indices": columns[first:last],
                "indptr": ptr[start : start + n + 1],
                "_shape": (n, n_columns),
            }
            chains.append(chain)
            start += n + 1
        return make_object_array(chains)


def _count_shard_names(shard: Shard, vectorizer):
    """Return node names with counts, edge names with counts (None without edge features), and the sequence count."""
    X = shard.load()[0]
    with shard.named_in_errors():
        if vectorizer.edge_features is None:
            of_nodes, n_sequences = vectorizer._count_names(X)
            return of_nodes, None, n_sequences
        X = [list(sequence) for sequence in X]
        of_nodes, n_sequences = vectorizer._count_names(X)
        of_edges, _ = vectorizer._count_names(_iterate_pair_features(vectorizer.edge_features, X))
    return of_nodes, of_edges, n_sequences


def _join_vocabulary(parts, min_count):
    """Return the joint vocabulary of several parts; ``parts`` holds the names and counts of each part."""
    total: dict[str, int] = {}
    for names, counts in parts:
        for name, count in zip(names, counts.tolist(), strict=True):
            total[name] = total.get(name, 0) + count
    kept = total if min_count == 1 else (name for name, count in total.items() if count >= min_count)
    return {name: column for column, name in enumerate(kept)}


def _examples(chains, edges):
    graphs = {n: lattice((n,)) for n in {chain.shape[0] for chain in chains}}
    return make_object_array(
        [Example(chain, graphs[chain.shape[0]], part) for chain, part in zip(chains, edges, strict=True)]
    )


def _iterate_pair_features(features, X):
    """Yield, for each sequence, a list with the features of each pair of neighbouring tokens."""
    return ([features(*pair) for pair in pairwise(sequence)] for sequence in X)
