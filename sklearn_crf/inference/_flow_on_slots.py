"""Maximum flow on a general graph, or on one joined to its mirror image."""

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._flow_on_lattice import WORK_PER_CALL
from sklearn_crf.kernels.fusion_moves import slot_terms
from sklearn_crf.kernels.max_flow import slot_flow


class SlotFlow:
    """Buffers of the flow on any graph: residual capacities by slot of ``graph.incidence``.

    Parameters
    ----------
    graph : Graph
    dtype : dtype
        int32 or int64, of capacities.
    mirrored : bool, default=False
        Add a mirror image of every node, with the opposite excess, for edges that lead from a node to the mirror
        image of another.
    """

    def __init__(self, graph, dtype, mirrored=False):
        copies = 2 if mirrored else 1
        n_nodes, n_slots = copies * graph.n_nodes, 2 * graph.n_edges
        self.incidence = graph.incidence
        self.residual = np.zeros(copies * n_slots, dtype=dtype)
        self.excess = np.empty(n_nodes, dtype=dtype)
        self._cross = np.zeros(n_slots if mirrored else 0, dtype=np.uint8)
        self._label = np.zeros(n_nodes, dtype=np.int32)
        self._parent = np.empty(n_nodes, dtype=np.int32)
        self._flag = np.empty(n_nodes, dtype=np.uint8)
        self._lists = np.empty((5, n_nodes), dtype=np.int32)
        self._bucket = np.empty(n_nodes + 4, dtype=np.int32)

    def set_capacities(self, values, keep, take, scale, endless, precision, mode, cost):
        """Capacities of all edges, and what they add to the cost of nodes; see ``kernels.fusion_moves``."""
        _, _, half_edge, reverse = self.incidence
        rounding = (scale, endless, precision, mode)
        return slot_terms(*values, keep, take, half_edge, reverse, *rounding, cost, self.residual, self._cross)

    def solve(self, n_threads=1):
        """Nodes on the demand side of the minimum cut, of the smallest such set."""
        ptr, neighbor, _, reverse = self.incidence
        topology = (self.residual, self.excess, ptr, neighbor, reverse, self._cross)
        work_space = (self._label, self._parent, self._flag, self._lists, self._bucket)
        progress = np.zeros(8, dtype=np.int64)
        while not slot_flow(*topology, *work_space, progress, WORK_PER_CALL):
            checkpoint()
        return self._label < 0
