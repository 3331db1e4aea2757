"""Generators, which find assignments under the current weights, to be contrasted with the true labeling."""

from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from sklearn_crf._options import options
from sklearn_crf._own_methods import ChecksOwnMethods
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.inference import ICM, gibbs_sweeps
from sklearn_crf.inference._field import Messages
from sklearn_crf.inference._local_search import random_labels
from sklearn_crf.inference.messages._belief_propagation import MessagePassing
from sklearn_crf.models import FactorGraph, check_labels
from sklearn_crf.objectives.margin._costs import loss_augmented


class Generator(ChecksOwnMethods, HoldsOptions):
    """Base class of generators of assignments. A subclass implements ``__call__``.

    Examples
    --------
    >>> from sklearn_crf.objectives import Generator, GibbsGenerator, MapGenerator
    >>> [
    ...     isinstance(generator, Generator)
    ...     for generator in (GibbsGenerator(2), MapGenerator())
    ... ]
    [True, True]
    """

    #: Whether each call starts from the previous labeling of the same example, which is passed as ``start``.
    persistent = False
    _returns: ClassVar[dict] = {"__call__": lambda found, model, *others, **options: check_labels(model, found)}

    def __call__(self, model, labels, rng, *, node_weight=None, n_threads=1):
        """Generate one assignment.

        A persistent generator has another parameter ``start``: the previous labeling of the example, or None in the
        first call.

        Parameters
        ----------
        model : PairwiseModel
            Model at the current weights.
        labels : ndarray of shape (N,), int32
            True labels.
        rng : numpy.random.RandomState
        node_weight : ndarray of shape (N,), optional
            Factor by which the cost of each node is multiplied, for generators that search for violated constraints.
        n_threads : int, default=1

        Returns
        -------
        ndarray of shape (N,), int32
        """
        raise NotImplementedError(type(self).__name__)


@options(kw_only=False)
class MapGenerator(Generator):
    """Generator of local maxima of the score, by MAP inference from a random start.

    Iterated conditional modes start from random labels, and message passing on pairwise models from random messages, so
    different calls can find different optima. Other algorithms do not depend on a start and always find the same
    labeling.

    Parameters
    ----------
    inference : str or Inference, default="auto"
        Inference with the task ``"map"``. In an estimator, "auto" is max-product with residual scheduling.

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

    inference: Any = "auto"

    def __call__(self, model, labels, rng, *, node_weight=None, n_threads=1):
        inference = self.inference
        if isinstance(model, FactorGraph) and isinstance(inference, MessagePassing):
            # In factor graphs, messages support only one order of updates.
            inference = clone(inference).set_params(schedule="auto")
        return inference.map(model, init=self._start(model, rng), n_threads=n_threads).labels

    def _start(self, model, rng):
        if isinstance(self.inference, ICM):
            return random_labels(model, rng)
        if isinstance(self.inference, MessagePassing) and not isinstance(model, FactorGraph):
            # Random messages have a magnitude of about 1, like typical log-odds.
            # Smaller messages would have no effect, and larger messages would outweigh the unary scores.
            return Messages(rng.normal(size=(2 * model.graph.n_edges, model.n_columns)), as_scores=True)
        return None


@options(kw_only=False)
class GibbsGenerator(Generator):
    """Generator that makes a few Gibbs sweeps from the true labeling, or from the previous assignment.

    Sweeps from the true labeling are used as in contrastive divergence. Persistent chains move away from the true
    labeling, so that their labelings become samples from the model. A few sweeps from the true labeling do not produce
    samples from the model.

    Parameters
    ----------
    n_sweeps : int
    persistent : bool, default=False
        Whether the chain of an example continues from the previous call.

    References
    ----------
    T. Tieleman. Training Restricted Boltzmann Machines using Approximations to the Likelihood Gradient. ICML 2008,
    :doi:`10.1145/1390156.1390290`.

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

    n_sweeps: int
    persistent: bool = False

    def __call__(self, model, labels, rng, *, start=None, node_weight=None, n_threads=1):
        seed = int(rng.randint(np.iinfo(np.int64).max, dtype=np.int64))
        return gibbs_sweeps(model, labels if start is None else start, self.n_sweeps, seed, n_threads=n_threads)


@options(kw_only=False)
class MostViolated(Generator):
    r"""Generator that runs another generator on scores plus costs, :math:`\mathrm{score}(y) + \Delta(y, y^*)`.

    Parameters
    ----------
    generator : Generator
    cost : ndarray of shape (K, K), float64
        Cost ``cost[a, b]`` of state a if b is the true state.

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

    generator: Generator
    cost: Any

    @property
    def persistent(self):  # type: ignore[override]
        """Whether the inner generator starts from its previous labeling."""
        return self.generator.persistent

    def __call__(self, model, labels, rng, *, node_weight=None, n_threads=1, **start):
        augmented = loss_augmented(model, labels, self.cost, node_weight)
        return self.generator(augmented, labels, rng, n_threads=n_threads, **start)
