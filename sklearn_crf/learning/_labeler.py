"""Prediction of labels and marginals of the nodes of examples under given weights."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sklearn_crf._threads import limit_blas_threads, map_coarse
from sklearn_crf.encoding import complete_batch
from sklearn_crf.inference import AutoMarginals, Inference, NamedInference
from sklearn_crf.learning._batch_labels import (
    given,
    labels_of,
    labels_of_most_gain,
    marginals_of,
    weigh_marginals,
)
from sklearn_crf.learning._prediction_paths import PREDICTION_PATHS
from sklearn_crf.objectives import apply_temperature
from sklearn_crf.objectives.fast_paths import applying


@dataclass(frozen=True, eq=False)
class Labeler:
    """Predictor of node labels and marginals by an inference, a temperature, error costs and class weights."""

    decoding: NamedInference
    n_classes: int
    has_distribution: bool = True
    temperature: float = 1.0
    cost: np.ndarray | None = None  # (K, K), cost[a, b] of predicting class a if the true class is b
    class_weight: np.ndarray | None = None  # (K,) multipliers of the marginals
    n_jobs: int | None = None
    fallback: Inference | None = None  # Inference for marginals and samples if ``decoding`` supports neither

    @property
    def by_marginals(self) -> bool:
        """Whether each node is labelled by its marginals, with the label of the largest gain."""
        # Max-margin learning defines no probabilities, so marginals are only used if inference computes nothing else.
        has_marginals_alone = "map" not in self.decoding.inference.tasks
        return self.decoding.rule == "mpm" and (self.has_distribution or has_marginals_alone)

    def able(self, task: str) -> Inference:
        """Return the requested inference if it supports a task, else an automatic choice for marginals and samples."""
        asked = self.decoding.inference
        if task in asked.tasks:
            return asked
        return (
            self.fallback if self.fallback is not None and task in self.fallback.tasks else AutoMarginals(budget="fast")
        )

    def scores(self, potentials: Any, weights: np.ndarray, batch: Any) -> Any:
        """Return the model of a batch with scores divided by the temperature, without clamping known labels."""
        return apply_temperature(potentials.build_inference_model(weights, batch.example), self.temperature)

    def model(self, potentials: Any, weights: np.ndarray, batch: Any) -> Any:
        """Return the model of a batch clamped to its known labels."""
        return given(self.scores(potentials, weights, batch), batch.labels)

    def joined_by(self, *, labels: bool = True) -> Inference | None:
        """Return the inference that may process several graphs jointly, or None if labels do not use marginals."""
        return None if labels and not self.by_marginals else self.able("marginals")

    def columns(self, batches: list, potentials: Any, voters: list[np.ndarray]) -> list:
        """Return the class indices of the nodes of each batch, by a vote of one or several weight vectors."""
        if self.by_marginals:
            return self._label_by_marginals(batches, potentials, voters)
        chosen = self.decoding.inference

        def run(batch, n_threads):
            if len(voters) == 1:
                return labels_of(self, potentials, voters[0], batch, chosen, n_threads)
            votes = np.zeros((batch.example.n_nodes, self.n_classes))
            for voter in voters:
                labels = labels_of(self, potentials, voter, batch, chosen, n_threads)
                votes[np.arange(len(labels)), labels] += 1
            # The majority labels of nodes may be forbidden together even if the labeling of every voter is allowed.
            may_forbid = potentials.forbids or batch.example.has_factors
            model = self.model(potentials, voters[0], batch) if may_forbid else None
            return labels_of_most_gain(model, votes, n_threads)

        return self._fill_missing(run, self._find_by_fast_path(batches, potentials, voters, chosen, "map"), batches)

    def marginals(self, batches: list, potentials: Any, voters: list[np.ndarray]) -> list:
        """Compute the node marginals of every batch, averaged over the weight vectors `voters`."""
        chosen = self.able("marginals")

        def run(batch, n_threads):
            return self._average_voters(potentials, voters, batch, chosen, n_threads)[1]

        return self._fill_missing(
            run, self._find_by_fast_path(batches, potentials, voters, chosen, "marginals"), batches
        )

    def _label_by_marginals(self, batches, potentials, voters):
        """Label every batch by its node marginals, without keeping the marginals of all batches in memory."""
        chosen = self.able("marginals")

        def run(batch, n_threads):
            model, marginals = self._average_voters(potentials, voters, batch, chosen, n_threads)
            with batch.named_in_errors():
                return labels_of_most_gain(model, self.gain(marginals, batch.node_ptr), n_threads)

        return self._fill_missing(run, self._find_by_fast_path(batches, potentials, voters, chosen, "mpm"), batches)

    def _average_voters(self, potentials, voters, batch, inference, n_threads):
        """Return the model of a batch under the first voter, and the node marginals averaged over all voters."""
        found = [marginals_of(self, potentials, voter, batch, inference, n_threads) for voter in voters]
        model, marginals = found[0]
        return model, marginals if len(found) == 1 else sum(each for _, each in found) / len(found)

    def _find_by_fast_path(self, batches, potentials, voters, inference, rule):
        """Return the result of a fast path for each batch, or None for a batch that no fast path supports."""
        found = [None] * len(batches)
        for path in applying(PREDICTION_PATHS, self, batches, potentials, voters, rule):
            missing = [i for i, part in enumerate(found) if part is None]
            some = [batches[i] for i in missing]
            parts = path(self, some, potentials, voters[0], inference, rule).found(self.n_jobs) if some else []
            for i, part in zip(missing, parts, strict=True):
                found[i] = part
        return found

    def _fill_missing(self, run, found, batches):
        """Compute the missing results with a function of a batch, and return all results."""
        missing = [i for i, part in enumerate(found) if part is None]

        def run_pending(i, n_threads):
            return run(complete_batch(batches[i]), n_threads)

        if missing:
            with limit_blas_threads():
                made = map_coarse(run_pending, missing, self.n_jobs)
            for i, part in zip(missing, made, strict=True):
                found[i] = part
        return found

    @property
    def weighs_marginals(self) -> bool:
        """Whether costs or class weights apply; labels then maximise a gain instead of the marginals."""
        return self.cost is not None or self.class_weight is not None

    def gain(self, probability, node_ptr):
        """Return the gain of each label of a node: its weighted probability, or its negative expected cost."""
        probability = weigh_marginals(probability, self.class_weight, np.diff(node_ptr))
        return probability if self.cost is None else -(probability @ self.cost.T)


def weigh_correct_nodes(columns: list, batches: list, weight: np.ndarray | None = None) -> tuple[float, float]:
    """Return the total weight of the correctly predicted nodes, and the total weight of all labelled nodes."""
    right = total = 0.0
    for batch, predicted in zip(batches, columns, strict=True):
        labelled = batch.labels >= 0
        of_examples = np.ones(len(batch.members)) if weight is None else weight[batch.members]
        share = np.repeat(of_examples, np.diff(batch.node_ptr))[labelled]
        right += float(share[predicted[labelled] == batch.labels[labelled]].sum())
        total += float(share.sum())
    return right, total
