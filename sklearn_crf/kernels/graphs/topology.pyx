"""Loops over the topology of a graph: traversal order of forests, greedy colouring."""

from libc.stdint cimport int32_t, int64_t


def forest_order(
    const int64_t[::1] ptr,  # IN (N + 1,) first slot of each node
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] reverse,  # IN (2E,) the same edge seen from its other end
    int32_t[::1] order,  # OUT (N,) every node after its parent
    int32_t[::1] parent_slot,  # OUT (N,) slot of the node that leads to its parent, -1 at a root
    int32_t[::1] component,  # OUT (N,) number of the connected component, by its smallest node
):
    """Breadth-first order of every component; (no cycle?, number of components)."""
    cdef:
        Py_ssize_t n_nodes = order.shape[0]
        Py_ssize_t root, head, tail = 0
        int64_t slot
        int32_t node, other, n_components = 0
        bint acyclic = True
    with nogil:
        for root in range(n_nodes):
            component[root] = -1
        for root in range(n_nodes):
            if component[root] >= 0:
                continue
            component[root] = n_components
            parent_slot[root] = -1
            order[tail] = <int32_t> root
            head = tail
            tail += 1
            while head < tail:
                node = order[head]
                head += 1
                for slot in range(ptr[node], ptr[node + 1]):
                    if slot == parent_slot[node]:
                        continue
                    other = neighbor[slot]
                    if component[other] >= 0:
                        acyclic = False
                        continue
                    component[other] = n_components
                    order[tail] = other
                    tail += 1
                    parent_slot[other] = reverse[slot]
            n_components += 1
    return acyclic, n_components


def greedy_colouring(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] neighbor,  # IN (2E,)
    int32_t[::1] colour,  # OUT (N,) no two neighbours alike
    int32_t[::1] last_seen,  # workspace (largest degree + 1,), filled with -1
):
    """Give each node, in order, the smallest colour free among its neighbours; number of colours."""
    cdef:
        Py_ssize_t node
        int64_t slot
        int32_t chosen, n_colours = 0
    with nogil:
        for node in range(colour.shape[0]):
            for slot in range(ptr[node], ptr[node + 1]):
                if neighbor[slot] < node:
                    last_seen[colour[neighbor[slot]]] = <int32_t> node
            chosen = 0
            while last_seen[chosen] == node:
                chosen += 1
            colour[node] = chosen
            if chosen >= n_colours:
                n_colours = chosen + 1
    return n_colours
