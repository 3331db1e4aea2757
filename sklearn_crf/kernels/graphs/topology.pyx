"""Loops over the topology of a graph: traversal order of forests, greedy colouring."""

from libc.stdint cimport int32_t, int64_t


def list_incidence(
    const int32_t[:, ::1] edges,  # IN (E, 2)
    int64_t[::1] ptr,  # OUT (N + 1,)
    int32_t[::1] neighbor,  # OUT (2E,)
    int32_t[::1] half_edge,  # OUT (2E,)
    int32_t[::1] reverse,  # OUT (2E,)
):
    """The edges of each node in their order, by counting."""
    cdef:
        Py_ssize_t edge, node, n_nodes = ptr.shape[0] - 1
        int64_t slot, other, total = 0, count
        int32_t i, j
    with nogil:
        ptr[:] = 0
        for edge in range(edges.shape[0]):
            ptr[edges[edge, 0]] += 1
            ptr[edges[edge, 1]] += 1
        for node in range(n_nodes):
            count = ptr[node]
            ptr[node] = total
            total += count
        # Each start moves on to its end, which is where the next node starts.
        for edge in range(edges.shape[0]):
            i, j = edges[edge, 0], edges[edge, 1]
            slot = ptr[i]
            ptr[i] += 1
            other = ptr[j]
            ptr[j] += 1
            neighbor[slot], neighbor[other] = j, i
            half_edge[slot], half_edge[other] = <int32_t> (2 * edge), <int32_t> (2 * edge + 1)
            reverse[slot], reverse[other] = <int32_t> other, <int32_t> slot
        for node in range(n_nodes, 0, -1):
            ptr[node] = ptr[node - 1]
        ptr[0] = 0


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
