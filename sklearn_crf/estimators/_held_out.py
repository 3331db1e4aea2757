"""Examples that training does not see, and that choose one of its iterates."""

from copy import copy
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_consistent_length, check_random_state

from sklearn_crf.encoding import encode_y, make_batches, summable_weight, validate_sample_weight
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.learning import HeldOutScores
from sklearn_crf.model_selection import take_examples


class HeldOutExamples(NamedTuple):
    """Examples that training does not see, which choose one of its iterates."""

    X: object
    y: object
    weight: np.ndarray | None
    n_iter_no_change: int

    def scores(self, field, encoded, fitted_now, n_coef):
        """Their scores at every iterate; ``fitted_now`` gives the fitted attributes of flat weights."""
        fitted = copy(field)
        encoded.record(fitted)
        vars(fitted).update(fitted_now(np.zeros(n_coef)))
        try:
            own, batches, potentials, _ = fitted._prepare(self.X)
            options = {"missing_label": fitted.missing_label, "classes": fitted.classes_, "name": "y_val"}
            # A label that training did not have is never predicted: its nodes are errors.
            known = encode_y(self.y, own, allow_unknown=True, **options).labels
        except ValueError as error:
            raise ValueError(f"X_val and y_val, the examples held out: {error}") from error
        truth = make_batches(own, known)
        n_classes = len(fitted.classes_)
        if not any(np.any((batch.labels >= 0) & (batch.labels < n_classes)) for batch in truth):
            raise ValueError(
                "y_val has no labelled node of a class of the training labels: there is nothing to choose the weights "
                "by."
            )
        weight = summable_weight(self.weight)

        def score(coef):
            vars(fitted).update(fitted_now(coef))
            with convergence_left_to_caller():
                columns = fitted._columns(batches, potentials, [fitted._flat_weights(potentials)])
            right, total = right_nodes(columns, truth, weight)
            return right / total

        return HeldOutScores(score, self.n_iter_no_change)


def split_examples(X, y, weights, rule, random_state):
    """Training examples, weights of these, and :class:`HeldOutExamples`, a random part of them."""
    # weights: tuple of sequences with an entry for each example, or None; the first is that of examples
    if y is None:
        raise ValueError(
            "early_stopping=True holds out a part of X and y, got y=None: with Shards pass X_val and y_val."
        )
    check_consistent_length(X, y, *weights)
    n_examples = X.shape[0] if hasattr(X, "shape") else len(X)
    if n_examples < 2:
        raise ValueError(
            "early_stopping=True holds out a part of the examples, but X has one alone: pass X_val and y_val."
        )
    n_held_out = min(max(1, round(rule.validation_fraction * n_examples)), n_examples - 1)
    order = check_random_state(random_state).permutation(n_examples)
    held_out, kept = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
    weight = validate_sample_weight(weights[0], n_examples)
    part = HeldOutExamples(
        take_examples(X, held_out),
        take_examples(y, held_out),
        None if weight is None else weight[held_out],
        rule.n_iter_no_change,
    )
    weights = tuple(None if values is None else take_examples(values, kept) for values in weights)
    return take_examples(X, kept), take_examples(y, kept), weights, part


def right_nodes(columns, batches, weight=None):
    """Weights of the nodes of batches that are labelled as predicted, and of all that are labelled."""
    right = total = 0.0
    for batch, predicted in zip(batches, columns, strict=True):
        labelled = batch.labels >= 0
        of_examples = np.ones(len(batch.members)) if weight is None else weight[batch.members]
        share = np.repeat(of_examples, np.diff(batch.node_ptr))[labelled]
        right += float(share[predicted[labelled] == batch.labels[labelled]].sum())
        total += float(share.sum())
    return right, total
