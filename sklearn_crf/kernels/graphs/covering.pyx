# distutils: language = c++
"""The cheapest spanning trees, and trees that cover the edges of many graphs in one call."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "covering.hpp" namespace "sklearn_crf" nogil:
    void cheapest_forest(
        const int32_t* edges, int64_t n_edges, const double* cost, const double* ties, int32_t* parent, uint8_t* has
    ) except +
    void cover_components(
        const int32_t* edges, const int32_t* numbers, const int64_t* ptr, int64_t n_components, int32_t* parent,
        int64_t* counts, int64_t* n_trees,
    ) except +


def find_cheapest_forest(
    const int32_t[:, ::1] edges,  # IN (E, 2), E > 0
    const double[::1] cost,  # IN (E,)
    const double[::1] ties,  # IN (E,) a second cost, or empty: the first of equal edges is taken
    int32_t[::1] parent,  # workspace (N,)
    uint8_t[::1] has,  # OUT (E,)
):
    """Which edges the cheapest spanning forest has."""
    with nogil:
        cheapest_forest(
            &edges[0, 0], edges.shape[0], &cost[0], &ties[0] if ties.shape[0] else NULL, &parent[0], &has[0]
        )


def covering_counts(
    const int32_t[:, ::1] edges,  # IN (E, 2), E > 0
    const int32_t[::1] numbers,  # IN (E,) edges by component, ascending in each
    const int64_t[::1] ptr,  # IN (n_components + 1,) first of each component in numbers
    int32_t[::1] parent,  # workspace (N,)
    int64_t[::1] counts,  # OUT (E,) how many trees of its component have each edge
    int64_t[::1] n_trees,  # OUT (n_components,) trees of each; 0 of those without edges
):
    """Cover each component with trees as if it were alone, and count those of every edge."""
    with nogil:
        cover_components(&edges[0, 0], &numbers[0], &ptr[0], n_trees.shape[0], &parent[0], &counts[0], &n_trees[0])
