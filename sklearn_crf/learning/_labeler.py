"""The labels and marginals of the nodes of examples, under the weights of a field."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sklearn_crf._threads import map_coarse, single_threaded_blas
from sklearn_crf.encoding import are_pending, made_batch
from sklearn_crf.inference import AutoMarginals, Inference, NamedInference
from sklearn_crf.learning._batch_labels import (
    given,
    labels_of,
    labels_of_most_gain,
    marginals_of,
    weighed_marginals,
)
from sklearn_crf.learning._chain_labels import PREDICTION_PATHS
from sklearn_crf.objectives import at_temperature
from sklearn_crf.objectives.fast_paths import applying


@dataclass(frozen=True, eq=False)
class Labeler:
    """Labels the nodes of batches: by an inference, at a temperature, under costs and weights of classes."""

    decoding: NamedInference
    n_classes: int
    has_distribution: bool = True
    temperature: float = 1.0
    cost: np.ndarray | None = None  # (K, K), cost[a, b] of class a where b is true
    class_weight: np.ndarray | None = None  # (K,) factors of the marginals
    n_jobs: int | None = None
    fallback: Inference | None = None  # For marginals and samples, where ``decoding`` has none

    @property
    def by_marginals(self) -> bool:
        """Whether each node has the label of most gain under its marginals."""
        # Margins promise no probabilities, but an inference that has marginals alone can still label by them.
        has_marginals_alone = "map" not in self.decoding.inference.tasks
        return self.decoding.rule == "mpm" and (self.has_distribution or has_marginals_alone)

    def able(self, task: str) -> Inference:
        """Return the inference if it supports a task, else the automatic choice for marginals and samples."""
        asked = self.decoding.inference
        if task in asked.tasks:
            return asked
        return (
            self.fallback if self.fallback is not None and task in self.fallback.tasks else AutoMarginals(budget="fast")
        )

    def scores(self, potentials: Any, weights: np.ndarray, batch: Any) -> Any:
        """Return the model of a batch."""
        return at_temperature(potentials.inference_model(weights, batch.example), self.temperature)

    def model(self, potentials: Any, weights: np.ndarray, batch: Any) -> Any:
        """Return the model of a batch, clamped to the labels that are known."""
        return given(self.scores(potentials, weights, batch), batch.labels)

    def joined_nodes(self, *, labels: bool = True) -> int:
        """Return the nodes up to which graphs with cycles are taken together, for labels or for marginals."""
        return 1 if labels and not self.by_marginals else self.able("marginals").joined_nodes

    def columns(self, batches: list, potentials: Any, voters: list[np.ndarray]) -> list:
        """Return the column of each node's label for every batch, by one or several flat vectors of weights."""
        if self.by_marginals:
            return self._labels_by_marginals(batches, potentials, voters)
        chosen = self.decoding.inference

        def run(batch, n_threads):
            if len(voters) == 1:
                return labels_of(self, potentials, voters[0], batch, chosen, n_threads)
            votes = np.zeros((batch.example.n_nodes, self.n_classes))
            for voter in voters:
                labels = labels_of(self, potentials, voter, batch, chosen, n_threads)
                votes[np.arange(len(labels)), labels] += 1
            # Labels that win at each node need not fit together where those of each voter do.
            may_forbid = potentials.forbids or batch.example.has_factors
            model = self.model(potentials, voters[0], batch) if may_forbid else None
            return labels_of_most_gain(model, votes, n_threads)

        return self._mapped(run, self._found_at_once(batches, potentials, voters, chosen, "map"), batches, chosen)

    def marginals(self, batches: list, potentials: Any, voters: list[np.ndarray]) -> list:
        """Return the node marginals of every batch, averaged over the voters."""
        chosen = self.able("marginals")

        def run(batch, n_threads):
            return self._mean_of_voters(potentials, voters, batch, chosen, n_threads)[1]

        return self._mapped(run, self._found_at_once(batches, potentials, voters, chosen, "marginals"), batches, chosen)

    def _labels_by_marginals(self, batches, potentials, voters):
        """Return the labels of every batch by its node marginals, which are never all in memory."""
        chosen = self.able("marginals")

        def run(batch, n_threads):
            model, marginals = self._mean_of_voters(potentials, voters, batch, chosen, n_threads)
            with batch.named_in_errors():
                return labels_of_most_gain(model, self.gain(marginals, batch.node_ptr), n_threads)

        return self._mapped(run, self._found_at_once(batches, potentials, voters, chosen, "mpm"), batches, chosen)

    def _mean_of_voters(self, potentials, voters, batch, inference, n_threads):
        """Return a model of a batch, and its node marginals averaged over the voters."""
        found = [marginals_of(self, potentials, voter, batch, inference, n_threads) for voter in voters]
        model, marginals = found[0]
        return model, marginals if len(found) == 1 else sum(each for _, each in found) / len(found)

    def _found_at_once(self, batches, potentials, voters, inference, rule):
        """Return what the first fast path that applies finds of each batch, None where it finds nothing."""
        for path in applying(PREDICTION_PATHS, self, batches, potentials, voters, rule):
            return path(self, batches, potentials, voters[0], inference, rule).found(self.n_jobs)
        return [None] * len(batches)

    def _mapped(self, run, found, batches, inference):
        """Map a function over the batches of which nothing is found."""
        missing = [i for i, part in enumerate(found) if part is None]

        def run_pending(i, n_threads):
            return run(made_batch(batches[i]), n_threads)

        if missing:
            takes_turns = are_pending(batches) and inference.takes_turns_on_forests
            with single_threaded_blas():
                made = map_coarse(run_pending, missing, self.n_jobs, takes_turns=takes_turns)
            for i, part in zip(missing, made, strict=True):
                found[i] = part
        return found

    @property
    def weighs_marginals(self) -> bool:
        """Whether labels are of the most gain, not of the largest marginals."""
        return self.cost is not None or self.class_weight is not None

    def gain(self, probability, node_ptr):
        """Return what each label of a node is worth: its weighed probability, or less its expected cost."""
        probability = weighed_marginals(probability, self.class_weight, np.diff(node_ptr))
        return probability if self.cost is None else -(probability @ self.cost.T)


def right_nodes(columns: list, batches: list, weight: np.ndarray | None = None) -> tuple[float, float]:
    """Return the weights of the nodes of batches that are labelled as predicted, and of all that are labelled."""
    right = total = 0.0
    for batch, predicted in zip(batches, columns, strict=True):
        labelled = batch.labels >= 0
        of_examples = np.ones(len(batch.members)) if weight is None else weight[batch.members]
        share = np.repeat(of_examples, np.diff(batch.node_ptr))[labelled]
        right += float(share[predicted[labelled] == batch.labels[labelled]].sum())
        total += float(share.sum())
    return right, total
