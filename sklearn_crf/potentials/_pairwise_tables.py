"""Forms of pairwise tables that have few weights, entity schemes, and the options of pairwise tables."""

from dataclasses import KW_ONLY, dataclass
from functools import cache
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import StrOptions

from sklearn_crf._numbers import C_INTERVAL, as_array
from sklearn_crf._options import options
from sklearn_crf._threads import cached_property
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.potentials._segments import Segments


class EntityScheme(NamedTuple):
    """Label prefixes of one entity scheme, by the position of the token in its entity."""

    single: str  # prefix of the only token of an entity
    first: str
    inside: str
    last: str
    after_same: str = ""  # prefix of the first token of an entity directly after an entity of the same kind
    before_same: str = ""  # prefix of the last token of an entity directly before an entity of the same kind

    @property
    def prefixes(self) -> str:
        """All prefixes of the scheme, in one string."""
        used = {"O", *self.single, *self.first, *self.inside, *self.last, *self.after_same, *self.before_same}
        return "".join(prefix for prefix in "IOBESLU" if prefix in used)

    def list_prefixes(self, found) -> list[list[str]]:
        """Return the prefixes of all tokens of each entity.

        Entities are tuples (kind, start, stop), sorted by start.
        """

        def touches(a, b):
            return a[0] == b[0] and a[2] == b[1]

        prefixes = []
        for i, (_, start, stop) in enumerate(found):
            size = stop - start
            wanted = [self.single] if size == 1 else [self.first, *[self.inside] * (size - 2), self.last]
            # Schemes separate adjacent entities of the same kind by the prefix of the second or of the first entity.
            if self.after_same and i > 0 and touches(found[i - 1], found[i]):
                wanted[0] = self.after_same
            if self.before_same and i + 1 < len(found) and touches(found[i], found[i + 1]):
                wanted[-1] = self.before_same
            prefixes.append(wanted)
        return prefixes

    def parts_of(self, label) -> tuple[str, str] | None:
        """Split a label into prefix and kind, or return None if the prefix is not in the scheme."""
        prefix, _, kind = str(label).partition("-")
        return (prefix, kind) if len(prefix) == 1 and prefix in self.prefixes else None

    def may_follow(self, before, after) -> bool:
        """Return whether a label, given as (prefix, kind), can follow another label in a valid sequence."""
        is_same = before[1] == after[1] and "O" not in (before[0], after[0])
        return (before[0], after[0], is_same) in _list_successions(self)


@cache
def _list_successions(scheme):
    """Return all allowed successions, as tuples (first prefix, second prefix, whether both labels have one kind)."""
    # Sequences of three entities of up to four tokens, with and without gaps, contain all allowed successions.
    sizes, gaps = (1, 2, 4), (0, 1)
    found = {("O", "O", False)}
    for choice in product(product("X", sizes, (0,)), *[list(product("XY", sizes, gaps))] * 2):
        spans, stop = [], 1
        for kind, size, gap in choice:
            spans.append((kind, stop + gap, stop + gap + size))
            stop += gap + size
        labels = [("O", "")] * (stop + 1)
        for (kind, start, stop_here), prefixes in zip(spans, scheme.list_prefixes(spans), strict=True):
            labels[start:stop_here] = [(prefix, kind) for prefix in prefixes]
        found.update((a[0], b[0], a[1] == b[1] != "") for a, b in pairwise(labels))
    return found


#: Entity schemes by name.
ENTITY_SCHEMES = {
    "IOB1": EntityScheme("I", "I", "I", "I", after_same="B"),
    "IOB2": EntityScheme("B", "B", "I", "I"),
    "IOE1": EntityScheme("I", "I", "I", "I", before_same="E"),
    "IOE2": EntityScheme("E", "I", "I", "E"),
    "IOBES": EntityScheme("S", "B", "I", "E"),
    "BILOU": EntityScheme("U", "B", "I", "L"),
}


@dataclass(frozen=True, eq=False)
class PairwiseForm:
    r"""Form of pairwise tables, parameterised by a few weights.

    .. math:: \theta_{a b} = \mathrm{sign}_{a b} \, v_{\mathrm{index}(a, b)}
    """

    name: str
    index: np.ndarray  # (K, K) of int
    sign: np.ndarray  # (K, K)

    @property
    def n_weights(self):
        """Number of weights of one table, P."""
        return int(self.index.max()) + 1

    def expand(self, weights):
        """Build the tables from their weights."""
        # weights: (..., P); returns: (..., K, K)
        if self._is_whole_table:
            return weights.reshape(*weights.shape[:-1], *self.index.shape).copy()
        return weights[..., self.index] * self.sign

    @cached_property
    def _is_whole_table(self):
        """Whether every table entry has a separate weight, so that tables are reshaped weight vectors."""
        return bool(np.all(self.sign == 1)) and np.array_equal(self.index.ravel(), np.arange(self.index.size))

    @property
    def prefers_no_state(self):
        """Whether a pair of equal labels has the same score for every label."""
        return len({(i, s) for i, s in zip(self.index.diagonal(), self.sign.diagonal(), strict=True)}) == 1

    def adjoint(self, tables):
        """Convert the gradient with respect to the tables to the gradient with respect to the weights."""
        # tables: (..., K, K); returns: (..., P)
        if self._is_whole_table:
            return tables.reshape(*tables.shape[:-2], -1)
        signed = (tables * self.sign).reshape(*tables.shape[:-2], -1)
        # Sort entries by weight for reduceat, which is correct because every weight has at least one entry.
        order = np.argsort(self.index, axis=None, kind="stable")
        starts = np.searchsorted(self.index.ravel()[order], np.arange(self.n_weights))
        return np.add.reduceat(signed[..., order], starts, axis=-1)

    def restricted(self, allowed):
        """Return a copy in which only allowed entries have weights, and all other entries are zero."""
        # allowed: (K, K) of bool
        kept = np.unique(self.index[allowed & (self.sign != 0)])
        sign = np.where(np.isin(self.index, kept), self.sign, 0.0)
        return PairwiseForm(self.name, np.searchsorted(kept, self.index).clip(max=max(len(kept) - 1, 0)), sign)

    def softened(self, divisor):
        r"""Return a form in which the same weights give tables with reduced interactions between states.

        .. math:: \theta'_{ab} = \theta^0_{ab} + (\theta_{ab} - \theta^0_{ab}) / d, \qquad
            \theta^0_{ab} = (\theta_{aa} + \theta_{bb}) / 2
        """
        return _SoftenedForm(self.name, self.index, self.sign, divisor)

    def contract(self, tables):
        """Read the weights from tables, the inverse of :meth:`expand`."""
        # tables: (..., K, K); returns: (..., P)
        weights = np.zeros((*tables.shape[:-2], self.n_weights))
        used = self.sign != 0
        weights[..., self.index[used]] = tables[..., used] / self.sign[used]
        return weights


@dataclass(frozen=True, eq=False)
class _SoftenedForm(PairwiseForm):
    """Form of tables whose interactions are divided by a constant, see :meth:`PairwiseForm.softened`."""

    divisor: float

    def expand(self, weights):
        return _scale_differences(super().expand(weights), 1 / self.divisor)

    def contract(self, tables):
        return super().contract(_scale_differences(tables, self.divisor))

    def adjoint(self, tables):
        of_states = (tables.sum(axis=-1) + tables.sum(axis=-2)) * (0.5 - 0.5 / self.divisor)
        return super().adjoint(tables / self.divisor + of_states[..., np.newaxis] * np.eye(tables.shape[-1]))


def _scale_differences(tables, factor):
    """Scale the difference between each table entry and the mean of the diagonal entries of its two states."""
    of_states = np.diagonal(tables, axis1=-2, axis2=-1)
    of_states = (of_states[..., :, np.newaxis] + of_states[..., np.newaxis, :]) / 2
    return of_states + (tables - of_states) * factor


#: Names of the pairwise forms.
PAIRWISE_FORMS = ("ising", "potts", "symmetric", "full")


@cache
def make_pairwise_form(name, n_classes):
    """Return the form of pairwise tables with a given name."""
    if name == "auto":
        name = "ising" if n_classes == 2 else "potts"
    if name not in PAIRWISE_FORMS:
        raise ValueError(f"pairwise must be 'auto' or one of {sorted(PAIRWISE_FORMS)}, got {name!r}.")
    if name == "ising" and n_classes != 2:
        raise ValueError(f"pairwise='ising' is for two classes, got {n_classes}; use 'potts'.")
    index, sign = np.zeros((n_classes, n_classes), dtype=np.intp), np.ones((n_classes, n_classes))
    if name in ("ising", "potts"):
        sign = np.eye(n_classes) * 2 - 1 if name == "ising" else np.eye(n_classes)
    elif name == "symmetric":
        rows, columns = np.triu_indices(n_classes)
        index[rows, columns] = index[columns, rows] = np.arange(len(rows))
    else:
        index = np.arange(n_classes**2).reshape(n_classes, n_classes)
    index.flags.writeable = sign.flags.writeable = False
    return PairwiseForm(name, index, sign)


def _find_invalid_transitions(scheme, classes):
    """Return masks of the transitions, first labels and last labels that an entity scheme forbids."""
    # classes: (K,) of str; returns: pairs: (K, K), bool; ends: (2, K), bool
    rules = ENTITY_SCHEMES[scheme]
    parts = [rules.parts_of(label) for label in classes.tolist()]
    if None in parts:
        raise ValueError(
            f"forbidden={scheme!r} needs labels that begin with one of {[*rules.prefixes]}, such as "
            f"'{rules.first}-PER', got the class {classes.tolist()[parts.index(None)]!r}; list the forbidden pairs of "
            "labels instead."
        )
    # The positions before the start and after the end of a sequence count as labelled O.
    outside = ("O", "")
    pairs = np.array([[not rules.may_follow(before, after) for after in parts] for before in parts])
    first = [not rules.may_follow(outside, label) for label in parts]
    last = [not rules.may_follow(label, outside) for label in parts]
    return pairs, np.array([first, last])


@options(kw_only=False)
class PairwiseTables(HoldsOptions):
    """Options for the pairwise tables of a field.

    Parameters
    ----------
    form : str, default="auto"
        Form of the tables, see :func:`make_pairwise_form`.
    forbidden : {"IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"} or array-like of shape (n_pairs, 2), optional
        Pairs of labels with probability zero at the first and second node of an edge (on a chain, a label and the next
        label). The name of an entity scheme forbids all pairs that violate it, and labels that must not begin or end a
        sequence. In IOB2, "I-PER" only follows "B-PER" or "I-PER". In IOBES, an entity of several tokens also
        ends with "E-PER", and an entity of a single token is "S-PER".
    edge_types : {"tied", "offset"}, default="tied"
        Whether all edges of a lattice share their weights, or only edges with the same offset.
    C : float, optional
        Inverse strength of the penalty on the weights of edges (and factors), if the estimator has a penalty. None uses
        ``C`` of the estimator, which otherwise only applies to the weights of nodes.
    forbidden_first : array-like of labels, optional
        Forbidden labels of the first node of a sequence, in addition to labels forbidden by a scheme. In an
        :class:`~sklearn_crf.Example`, a first node has no incoming edges. Images and volumes have no first node: this
        parameter is then an error, and a scheme only forbids pairs.
    forbidden_last : array-like of labels, optional
        Forbidden labels of the last node of a sequence, which has no outgoing edges in an
        :class:`~sklearn_crf.Example`. A single node is both a first and a last node.
    boundary_weights : bool, default=False
        Whether to learn an additional score of each label for the first node of a sequence, and another for the last
        node.
        These scores are weights of two indicator features, penalised like all node weights, and stored as
        ``boundary_coef_`` of the classifier. First and last nodes are defined as for ``forbidden_first``.
    spacing : sequence of float, optional
        Distances between neighbours along each axis of an image or volume, for example ``(5.0, 1.0, 1.0)`` for slices
        5 mm apart and pixels of 1 mm. Edge features then depend on the distance d of an edge, divided by the smallest
        spacing. With ``"constant"``, they are :math:`[1, 1 / d]`. With ``"difference"``, they are
        :math:`[1, 1 / d, |x_i - x_j| / d]`. A function is called with the distances of edges (E,), in the given unit,
        as its third argument.
    segments : Segments, optional
        Scores of the durations of runs of a label, and a minimum duration, for sequences (:ref:`segments`). Learning
        must be by likelihood ("likelihood", "exact", "pma"), "spa", "mma" or "max_margin", with the default inference,
        "mpm" or "map".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.potentials import PairwiseTables
    >>> tagger = TRWCRF(pairwise=PairwiseTables("full", forbidden=[["O", "I"]]))
    >>> tagger.get_params()["pairwise__form"]
    'full'
    >>> iob2, classes = PairwiseTables(forbidden="IOB2"), np.array(["B-LOC", "I-LOC", "O"])
    >>> iob2.forbidden_pairs(classes).tolist()
    [[False, False, False], [False, False, False], [False, True, False]]
    >>> iob2.forbidden_ends(classes).tolist()
    [[False, True, False], [False, False, False]]
    """

    _parameter_constraints: ClassVar[dict] = {
        "form": [StrOptions({"auto", "directed", "associative", *PAIRWISE_FORMS})],
        "forbidden": ["array-like", StrOptions(set(ENTITY_SCHEMES)), None],
        "edge_types": [StrOptions({"tied", "offset"})],
        "C": [C_INTERVAL, None],
        "forbidden_first": ["array-like", None],
        "forbidden_last": ["array-like", None],
        "boundary_weights": ["boolean"],
        "spacing": ["array-like", None],
        "segments": [Segments, None],
    }

    form: str = "auto"
    forbidden: Any = None
    edge_types: str = "tied"
    C: float | None = None
    _: KW_ONLY
    forbidden_first: Any = None
    forbidden_last: Any = None
    boundary_weights: bool = False
    spacing: Any = None
    segments: Segments | None = None

    def forbidden_pairs(self, classes: np.ndarray) -> np.ndarray | None:
        """Return a mask of the forbidden pairs.

        Parameters
        ----------
        classes : ndarray of shape (K,)

        Returns
        -------
        ndarray of shape (K, K), bool, or None
            Mask, or None if no pairs are forbidden.

        Raises
        ------
        ValueError
            If the shape is wrong, a pair contains a label that is not a class, or a class is not a label of the scheme.
        """
        if self.forbidden is None:
            return None
        if isinstance(self.forbidden, str):
            return _find_invalid_transitions(self.forbidden, classes)[0]
        pairs = as_array(self.forbidden, "forbidden")
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(f"forbidden must have shape (n_pairs, 2), got {pairs.shape}.")
        mask = np.zeros((len(classes), len(classes)), dtype=bool)
        mask[tuple(_find_class_indices(pairs, classes, "forbidden").T)] = True
        return mask

    def forbidden_ends(self, classes: np.ndarray, lattice_ndim: int | None = 1) -> np.ndarray | None:
        """Return a mask of the classes that are forbidden at the first and at the last node of a sequence.

        Parameters
        ----------
        classes : ndarray of shape (K,)
        lattice_ndim : int or None, default=1
            Number of axes: 0 for rows, 1 for sequences, 2 for images, 3 for volumes, None for a list of examples.

        Returns
        -------
        ndarray of shape (2, K), bool, or None
            Mask, or None if no classes are forbidden.

        Raises
        ------
        ValueError
            If a label is not one of the classes, or examples are images or volumes.
        """
        given = {"forbidden_first": self.forbidden_first, "forbidden_last": self.forbidden_last}
        named = [name for name, labels in given.items() if labels is not None]
        has_ends = lattice_ndim is None or lattice_ndim < 2
        if named and not has_ends:
            raise ValueError(
                f"{named[0]} needs sequences, but X holds lattices of {lattice_ndim} axes, which have no first node: "
                "list only forbidden pairs."
            )
        mask = np.zeros((2, len(classes)), dtype=bool)
        if isinstance(self.forbidden, str) and has_ends:
            mask |= _find_invalid_transitions(self.forbidden, classes)[1]
        for row, name in zip(mask, given, strict=True):
            if name in named:
                row[_find_class_indices(np.ravel(given[name]), classes, name)] = True
        return mask if mask.any() else None


def _find_class_indices(labels, classes, name):
    """Convert labels to class indices, or raise ValueError for labels that are not classes."""
    unknown = labels[~np.isin(labels, classes)]
    if len(unknown):
        raise ValueError(f"{name} contains {unknown.tolist()[0]!r}, which is not among the classes {classes.tolist()}.")
    return np.searchsorted(classes, labels)
