"""What inferences that know how the two ends of edges go together have in common."""

from sklearn_crf.models import PairwiseModel


class EdgeMarginals:
    """Adds ``edge_marginals`` to an inference that writes ``_edge_marginals(model, edges, init, n_threads)``."""

    def edge_marginals(self, model, edges=None, *, init=None, n_threads=1):
        """Joint marginals of the two ends of edges, of what ``marginals`` gives for single nodes.

        Parameters
        ----------
        model : PairwiseModel
        edges : array-like of int, optional
            Numbers of the edges wanted; all by default, which takes E x K x K numbers.
        init : object, optional
            ``state`` of a former result.
        n_threads : int, default=1

        Returns
        -------
        ndarray of shape (n_edges, K, K)
            Entry (a, b) belongs to state a at ``graph.edges[e, 0]`` and b at ``graph.edges[e, 1]``.

        Raises
        ------
        ValueError
            If there is no edge of such a number, or if :class:`TRWMessagePassing` takes edge probabilities for
            ``schedule="convergent"`` that are not those of chains.
        """
        self._require("marginals", model)
        if not isinstance(model, PairwiseModel):
            raise TypeError(
                f"edge_marginals needs a PairwiseModel, got {type(model).__name__}: joint marginals of its factors are "
                "in log_table of its marginals."
            )
        return self._edge_marginals(model, edges, init, n_threads)
