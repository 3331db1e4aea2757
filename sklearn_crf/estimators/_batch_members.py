"""The members of a batch one by one: what runs over labelings must not mix them, as objectives may."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.graphs import Graph
from sklearn_crf.models import PairwiseModel


class Member(NamedTuple):
    """Examples of a batch on which inference runs at once: one, or all where they are forests.

    Attributes
    ----------
    graph : Graph
    nodes, edges : slice
        Which of the batch.
    """

    graph: Graph
    nodes: slice
    edges: slice

    def part_of(self, model):
        """Model of the member.

        Parameters
        ----------
        model : PairwiseModel
            Of the batch.

        Returns
        -------
        PairwiseModel
            Views of it.
        """
        if self.graph is model.graph:
            return model
        return PairwiseModel(
            self.graph,
            model.unary[self.nodes],
            model.tables,
            model.edge_type[self.edges],
            None if model.edge_weight is None else model.edge_weight[self.edges],
            None if model.n_states is None else model.n_states[self.nodes],
        )


def members_of(batch, encoded):
    """What inference must keep apart in a batch.

    Parameters
    ----------
    batch : Batch
    encoded : Encoded

    Returns
    -------
    list of Member
        In the order of the nodes.
    """
    graph = batch.example.graph
    if len(batch.members) == 1 or graph.is_forest:
        return [Member(graph, slice(0, graph.n_nodes), slice(0, graph.n_edges))]
    # All lattices of one array share their graph, and what is derived of it.
    graphs = [encoded.graph if encoded.layout == "array" else encoded.items[i].graph for i in batch.members]
    edge_ptr = np.concatenate(([0], np.cumsum([part.n_edges for part in graphs])))
    return [
        Member(part, slice(*batch.node_ptr[k : k + 2]), slice(*edge_ptr[k : k + 2])) for k, part in enumerate(graphs)
    ]
