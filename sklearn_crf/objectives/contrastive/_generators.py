"""Generators of assignments worth contrasting with the truth, under the current weights."""

from typing import Any, ClassVar

import numpy as np

from sklearn_crf._own_methods import ChecksOwnMethods
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.inference import ICM, gibbs_sweeps
from sklearn_crf.inference._field import Messages
from sklearn_crf.inference._local_search import random_labels
from sklearn_crf.inference.messages._belief_propagation import MessagePassing
from sklearn_crf.objectives._base import checked_assignment
from sklearn_crf.objectives.margin._costs import loss_augmented


class Generator(ChecksOwnMethods, HoldsOptions):
    """Base of what generates assignments: a subclass writes ``__call__``.

    Examples
    --------
    >>> from sklearn_crf.objectives import Generator, GibbsGenerator, MapGenerator
    >>> [
    ...     isinstance(generator, Generator)
    ...     for generator in (GibbsGenerator(2), MapGenerator())
    ... ]
    [True, True]
    """

    #: Whether a call goes on from the labeling that the last one for the same example gave, its ``start``.
    persistent = False
    _returns: ClassVar[dict] = {"__call__": checked_assignment}

    def __call__(self, model, labels, rng, *, node_weight=None, n_threads=1):
        """One assignment.

        A persistent generator is also given ``start``, the last labeling of the example, or None the first time.

        Parameters
        ----------
        model : PairwiseModel
            At the weights of now.
        labels : ndarray of shape (N,), int32
            The truth.
        rng : numpy.random.RandomState
        node_weight : ndarray of shape (N,), optional
            Costs of nodes, for generators that look for violated constraints.
        n_threads : int, default=1

        Returns
        -------
        ndarray of shape (N,), int32
        """
        raise NotImplementedError(type(self).__name__)


class MapGenerator(Generator):
    """A local optimum of the score: inference of best labelings from a random start.

    Iterated conditional modes start from random labels, message passing from random messages, so that one call after
    the other finds another optimum; other algorithms have no start and always find the same labeling.

    Parameters
    ----------
    inference : str or Inference, default="auto"
        One that can do ``"map"``. As the generator of an estimator, "auto" is max-product with residual scheduling.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import MapGenerator
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> MapGenerator(TreeInference())(
    ...     model, np.array([0, 0, 0], dtype=np.int32), np.random.RandomState(0)
    ... ).tolist()
    [1, 1, 1]
    """

    def __init__(self, inference: Any = "auto"):
        self.inference = inference

    def __call__(self, model, labels, rng, *, node_weight=None, n_threads=1):
        return self.inference.map(model, init=self._start(model, rng), n_threads=n_threads).labels

    def _start(self, model, rng):
        if isinstance(self.inference, ICM):
            return random_labels(model, rng)
        if isinstance(self.inference, MessagePassing):
            # Of the size of scores of odds: smaller ones would be forgotten, larger ones outweigh the unary scores.
            return Messages(rng.normal(size=(2 * model.graph.n_edges, model.n_columns)), as_scores=True)
        return None


class GibbsGenerator(Generator):
    """Assignments by a few Gibbs sweeps, from the truth as in contrastive divergence, or from the last assignment.

    Chains that go on leave the truth and come to be samples of the model, which few sweeps from the truth are not.

    Parameters
    ----------
    n_sweeps : int
    persistent : bool, default=False
        Whether the chain of an example goes on from round to round.

    References
    ----------
    T. Tieleman. Training Restricted Boltzmann Machines using Approximations to the Likelihood Gradient. ICML 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import GibbsGenerator
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> GibbsGenerator(n_sweeps=2)(
    ...     model, np.array([1, 1, 1], dtype=np.int32), np.random.RandomState(0)
    ... ).shape
    (3,)
    """

    def __init__(self, n_sweeps: int, persistent: bool = False):
        self.n_sweeps = n_sweeps
        self.persistent = persistent

    def __call__(self, model, labels, rng, *, start=None, node_weight=None, n_threads=1):
        seed = int(rng.randint(np.iinfo(np.int64).max, dtype=np.int64))
        return gibbs_sweeps(model, labels if start is None else start, self.n_sweeps, seed, n_threads=n_threads)


class MostViolated(Generator):
    r"""The generator on scores to which the cost was added, :math:`\mathrm{score}(y) + \Delta(y, y^*)`.

    Parameters
    ----------
    generator : Generator
    cost : ndarray of shape (K, K), float64
        ``cost[a, b]`` of state a where b is true.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import MapGenerator, MostViolated
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> worst = MostViolated(MapGenerator(TreeInference()), 2.0 * (1 - np.eye(2)))
    >>> worst(model, np.array([1, 1, 1], dtype=np.int32), np.random.RandomState(0)).tolist()
    [0, 0, 0]
    """

    def __init__(self, generator, cost):
        self.generator = generator
        self.cost = cost

    @property
    def persistent(self):  # type: ignore[override]
        """Whether the inner generator goes on from its last labeling."""
        return self.generator.persistent

    def __call__(self, model, labels, rng, *, node_weight=None, n_threads=1, **start):
        augmented = loss_augmented(model, labels, self.cost, node_weight)
        return self.generator(augmented, labels, rng, n_threads=n_threads, **start)
