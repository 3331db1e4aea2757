"""Labels of the nodes of a batch: by its model, by scores of some rows at a time, or of chains without a model."""

import numpy as np

from sklearn_crf.encoding import nodes_of
from sklearn_crf.inference import AlphaBetaSwap, AlphaExpansion, AutoMap, GraphCut
from sklearn_crf.inference._row_models import MadeRows
from sklearn_crf.inference.cuts._lattice_rows import LatticeRows
from sklearn_crf.potentials import LinearPotentials, SparsePotentials

# Of two states whose edges prefer equal labels, all of these find a minimum cut.
_CUTS_OF_TWO = (AutoMap, GraphCut, AlphaExpansion, AlphaBetaSwap)


def labels_of(field, potentials, weights, batch, inference, n_threads):
    """The best labels of a batch.

    Parameters
    ----------
    field : FieldClassifier
    potentials : LinearPotentials or FactorPotentials
    weights : ndarray of shape (n_coef,)
    batch : Batch
    inference : Inference
    n_threads : int

    Returns
    -------
    ndarray of shape (N,), int32
    """
    graph = batch.example.graph
    if batch.example.is_plain_lattice and LatticeRows.pays(graph):
        rows = MadeRows(graph, lambda *ends: field._model(potentials, weights, batch.rows(*ends)))
        with batch.named_in_errors():
            labels = _labels_by_rows(inference, len(field.classes_), rows, batch.example.has_quick_edges, n_threads)
        if labels is not None:
            return labels
    model = field._model(potentials, weights, batch)
    with batch.named_in_errors():
        return inference.map(model, n_threads=n_threads).labels


def _labels_by_rows(chosen, n_classes, rows, is_quick, n_threads):
    """Labels of a large lattice whose scores are made some rows at a time; None where that does not suit."""
    if n_classes == 2 and isinstance(chosen, _CUTS_OF_TWO):
        may_truncate = getattr(chosen, "nonsubmodular", None) != "error"
        return LatticeRows(rows).labels(n_threads, may_truncate=may_truncate)
    # Scores are made some thirty times.
    if n_classes > 2 and is_quick and isinstance(chosen, AlphaExpansion | AlphaBetaSwap):
        return chosen._labels_by_rows(rows, n_threads)
    return None


def marginals_of(field, potentials, weights, batch, inference, n_threads):
    """The node marginals of a batch.

    Parameters
    ----------
    field : FieldClassifier
    potentials : LinearPotentials or FactorPotentials
    weights : ndarray of shape (n_coef,)
    batch : Batch
    inference : Inference
    n_threads : int

    Returns
    -------
    ndarray of shape (N, n_classes), float64
    """
    model = field._model(potentials, weights, batch)
    with batch.named_in_errors():
        unary = inference.node_marginals(model, n_threads=n_threads)
    # Factor graphs have as many columns as some node of theirs has states.
    missing = len(field.classes_) - unary.shape[1]
    unary = np.pad(unary, ((0, 0), (0, missing))) if missing else unary
    return unary.astype(np.float64, copy=False)


def labels_of_chains(field, batches, potentials, voters, inference, rule, of_marginals=None):
    """Labeler of batches of chains that share a table, in two or three calls of kernels for each.

    To make their models takes as long as to look for labels, and is Python, which one thread runs at a time.

    Parameters
    ----------
    field : FieldClassifier
    batches : list of Batch
    potentials : LinearPotentials or FactorPotentials
    voters : list of ndarray of shape (n_coef,)
    inference : Inference
    rule : {"mpm", "map"}
        Whether a node has its likeliest label, or all have the best labeling.
    of_marginals : callable, optional
        Of the first rule: what is made of node marginals in place of labels.

    Returns
    -------
    callable(Batch) -> ndarray of shape (N,) or None
        None for a batch that is to be labelled by its model. None in place of the function where all are.
    """
    is_linear = type(potentials) in (LinearPotentials, SparsePotentials)
    if not is_linear or len(voters) > 1 or field._temperature != 1 or batches[0].labels is not None:
        return None
    first = nodes_of(batches[0], 1)
    labeler = None
    if first is not None:
        labeler = inference.labeler_of_chains(potentials.inference_model(voters[0], first), rule)
    if labeler is None:
        return None

    def label(batch):
        nodes = nodes_of(batch)
        if nodes is None:
            return None
        # What is not finite has no labels, and is an error of the model.
        with np.errstate(over="ignore", invalid="ignore"):
            unary = potentials.unary(voters[0], nodes)
            if of_marginals is None:
                return labeler.labels(unary, batch.node_ptr)
            marginals = labeler.node_marginals(unary, batch.node_ptr)
        return None if marginals is None else of_marginals(marginals.astype(np.float64, copy=False))

    return label
