"""Structured hinge losses with linear scores: the most violated labeling of a forest or small graph, and its plane.

Weights are one vector of doubles: feature weights by (node type, feature, column), so that all columns of a feature are
adjacent, then intercepts by (node type, column), then table weights by (edge type, edge feature, weight).
"""

from cython cimport floating
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, int64_t, uint8_t

from sklearn_crf.kernels.core.addresses cimport set_address
from sklearn_crf.kernels.rows cimport max_sum, row_max


cdef extern from "weight_rows.h" nogil:
    void sum_weighted_rows(const double*, const int32_t*, const double*, Py_ssize_t, Py_ssize_t, double*)


cdef struct Examples:
    Py_ssize_t n_states  # K
    Py_ssize_t width  # K or K + 1: rows of tables are whole vectors
    Py_ssize_t n_columns  # 1 for two states, whose scores are -z / 2 and z / 2; else K
    Py_ssize_t n_features
    Py_ssize_t n_sharing  # number of consecutive nodes that share a row of features
    Py_ssize_t n_tables  # edge types times edge features
    Py_ssize_t n_edge_features
    Py_ssize_t n_table_weights
    Py_ssize_t intercept_at
    Py_ssize_t tables_at
    Py_ssize_t n_weights
    Py_ssize_t first_node  # first node of the batch among the nodes of all batches
    double constant  # 0 without intercepts
    const void* features  # (N / n_sharing, n_features) of floating; or (nnz,) if features are sparse
    const int64_t* feature_ptr  # (N + 1,) first feature of each node, or NULL if features are dense
    const int32_t* feature_index  # (nnz,) node type times n_features, plus the feature
    const void* edge_weight  # (E, n_edge_features) of floating, or NULL: one
    const int32_t* node_type  # (N,) or NULL
    const uint8_t* barred  # (N, K) whether a state is forbidden for a node, or NULL
    const int32_t* labels  # (N,)
    const int32_t* order  # (N,) every node after its parent, example by example
    const int32_t* parent  # (N,) -1 at a root
    const int32_t* half_edge  # (N,) from the node to its parent
    const int32_t* has_cycles  # (m,) whether an example has cycles, so that labelings are enumerated
    const int64_t* earlier_ptr  # (N + 1,) edges of each node to nodes before it
    const int32_t* earlier  # (E,) half-edge from the node
    const int32_t* edges  # (E, 2)
    const int32_t* edge_type  # (E,)
    const int64_t* node_ptr  # (m + 1,)
    const int64_t* edge_ptr  # (m + 1,)
    const double* cost  # (K, K) by the true state and the other state
    const double* node_weight  # (N,) or NULL
    const double* weight  # (m,) weight of each hinge
    const int32_t* index  # (K, K) weight of each table entry
    const double* sign  # (K, K) factor of this weight
    const uint8_t* forbidden  # (K, K) whether a pair of states is forbidden, or NULL


cdef struct Slope:
    Py_ssize_t n_entries  # number of nonzero entries
    int32_t* entries  # (n_weights,) weight of each
    double* values  # (n_weights,) value of each
    int32_t* place  # (n_weights,) index of each weight among the entries, if it is an entry
    double* total  # (n_weights,) dense plane or sum of planes to add to, instead of entries; or NULL


cdef struct Workspace:
    double* scores  # (nodes of the largest example, K)
    double* tables  # (n_tables, 2, K, width) each table and its transpose
    double* mixed  # (K, width) table of one edge
    double* best  # (width,)
    double* factors  # (n_features + 1,) nonzero features of one node, and the constant
    double* local  # (nodes of the largest example, K)
    double* partial  # (nodes of the largest example,)
    int32_t* found  # (nodes of the largest example,)
    int32_t* tried  # (nodes of the largest example,)
    int32_t* nonzero  # (n_features + 1,) weight rows of the nonzero features of one node
    Slope slope  # slope of one plane


cdef inline void open_examples(object arrays, const floating[:, ::1] features, Examples* p) except *:
    """Return the addresses of the arrays, which the caller must keep alive."""
    cdef:
        const floating[:, ::1] edge_weight = arrays.edge_weight
        const uint8_t[:, ::1] barred = arrays.barred
        const int32_t[:, ::1] edges = arrays.edges
        const double[:, ::1] cost = arrays.cost
        const int32_t[:, ::1] index = arrays.index
        const double[:, ::1] sign = arrays.sign
        const uint8_t[:, ::1] forbidden = arrays.forbidden
    p.n_states = cost.shape[0]
    p.width = p.n_states + p.n_states % 2
    p.n_columns = arrays.n_columns
    p.n_features = arrays.n_features
    p.n_sharing = arrays.n_sharing
    p.n_edge_features = arrays.n_edge_features
    p.n_tables = arrays.n_edge_types * p.n_edge_features
    p.n_table_weights = arrays.n_table_weights
    p.intercept_at = arrays.n_node_types * p.n_features * p.n_columns
    p.constant = arrays.constant
    p.tables_at = p.intercept_at + (arrays.n_node_types * p.n_columns if p.constant != 0 else 0)
    p.n_weights = p.tables_at + p.n_tables * p.n_table_weights
    p.features = &features[0, 0] if features.shape[0] * features.shape[1] else NULL
    set_address(&p.feature_ptr, arrays.feature_ptr)
    set_address(&p.feature_index, arrays.feature_index)
    p.edge_weight = &edge_weight[0, 0] if edge_weight.shape[0] * edge_weight.shape[1] else NULL
    set_address(&p.node_type, arrays.node_type)
    p.barred = &barred[0, 0] if barred.shape[0] else NULL
    set_address(&p.labels, arrays.labels)
    set_address(&p.order, arrays.order)
    set_address(&p.parent, arrays.parent)
    set_address(&p.half_edge, arrays.half_edge)
    set_address(&p.has_cycles, arrays.has_cycles)
    set_address(&p.earlier_ptr, arrays.earlier_ptr)
    set_address(&p.earlier, arrays.earlier)
    p.edges = &edges[0, 0] if edges.shape[0] else NULL
    set_address(&p.edge_type, arrays.edge_type)
    set_address(&p.node_ptr, arrays.node_ptr)
    set_address(&p.edge_ptr, arrays.edge_ptr)
    p.cost = &cost[0, 0]
    set_address(&p.node_weight, arrays.node_weight)
    set_address(&p.weight, arrays.weight)
    p.index = &index[0, 0]
    p.sign = &sign[0, 0]
    p.forbidden = &forbidden[0, 0] if forbidden.shape[0] else NULL


cdef inline void partition_workspace(const Examples* p, Py_ssize_t n_integers, double* work, int32_t* found,
                                     Workspace* workspace) noexcept nogil:
    cdef:
        Py_ssize_t area = p.n_states * p.width
        Py_ssize_t largest = (n_integers - 2 * p.n_weights - p.n_features - 1) // 2
    workspace.tables = work
    workspace.mixed = workspace.tables + 2 * p.n_tables * area
    workspace.best = workspace.mixed + area
    workspace.factors = workspace.best + p.width
    workspace.scores = workspace.factors + p.n_features + 1
    workspace.local = workspace.scores + largest * p.n_states
    workspace.partial = workspace.local + largest * p.n_states
    workspace.slope.values = workspace.partial + largest
    workspace.found = found
    workspace.tried = found + largest
    workspace.nonzero = workspace.tried + largest
    workspace.slope.entries = workspace.nonzero + p.n_features + 1
    workspace.slope.place = workspace.slope.entries + p.n_weights
    workspace.slope.n_entries = 0
    workspace.slope.total = NULL


cdef inline void expand_tables(const Examples* p, const double* x, Workspace* workspace) noexcept nogil:
    """Compute the tables from weights, each also transposed."""
    cdef:
        Py_ssize_t K = p.n_states, k, a, b
        const double* weights
        double* table
        double* transposed
    for k in range(p.n_tables):
        weights = x + p.tables_at + k * p.n_table_weights
        table = workspace.tables + 2 * k * K * p.width
        transposed = table + K * p.width
        for a in range(K):
            for b in range(K):
                table[a * p.width + b] = p.sign[a * K + b] * weights[p.index[a * K + b]]
                if p.forbidden != NULL and p.forbidden[a * K + b]:
                    table[a * p.width + b] = -INFINITY
            for b in range(K, p.width):
                table[a * p.width + b] = transposed[a * p.width + b] = 0.0
        for a in range(K):
            for b in range(K):
                transposed[a * p.width + b] = table[b * p.width + a]


cdef inline const double* table_towards(const Examples* p, int32_t half_edge, Workspace* workspace,
                                        floating* precision) noexcept nogil:
    """Return the scores (K, width) of an edge, by the states of the start and of the other end of a half-edge."""
    cdef:
        Py_ssize_t K = p.n_states, area = K * p.width, R = p.n_edge_features, edge = half_edge >> 1, r, i, a, b
        Py_ssize_t transposed = area * (half_edge & 1)
        const floating* weight
        const double* table = workspace.tables + 2 * p.edge_type[edge] * R * area
    if p.edge_weight == NULL:
        return table + transposed
    weight = (<const floating*> p.edge_weight) + edge * R
    for i in range(area):
        workspace.mixed[i] = 0.0
    for r in range(R):
        for i in range(area):
            workspace.mixed[i] += weight[r] * table[2 * r * area + transposed + i]
    for a in range(K if p.forbidden != NULL else 0):
        # Set explicitly, since -inf times a feature may be NaN.
        for b in range(K):
            if p.forbidden[b * K + a if half_edge & 1 else a * K + b]:
                workspace.mixed[a * p.width + b] = -INFINITY
    return workspace.mixed


cdef inline const floating* row_of_features(const Examples* p, Py_ssize_t node, floating* precision) noexcept nogil:
    """Return the dense features of a node."""
    return (<const floating*> p.features) + (node if p.n_sharing == 1 else node // p.n_sharing) * p.n_features


cdef inline Py_ssize_t find_nonzero(const Examples* p, Py_ssize_t node, Workspace* workspace,
                                    floating* precision) noexcept nogil:
    """Return the number of nonzero features of a node; write their weight rows and values to the workspace."""
    cdef:
        Py_ssize_t n_nonzero = 0, F = p.n_features, f
        int32_t first
        const floating* features = <const floating*> p.features
    if p.feature_ptr != NULL:
        for f in range(p.feature_ptr[node], p.feature_ptr[node + 1]):
            workspace.nonzero[n_nonzero] = p.feature_index[f]
            workspace.factors[n_nonzero] = features[f]
            n_nonzero += 1
        return n_nonzero
    features = row_of_features(p, node, <floating*> NULL)
    first = 0 if p.node_type == NULL else <int32_t> (p.node_type[node] * F)
    for f in range(F):
        # Without a branch, which would often be mispredicted.
        workspace.nonzero[n_nonzero] = first + <int32_t> f
        workspace.factors[n_nonzero] = features[f]
        n_nonzero += fabs(features[f]) > 0
    return n_nonzero


cdef inline double product_of_features(const Examples* p, Py_ssize_t node, const double* weights,
                                       floating* precision) noexcept nogil:
    """Return the inner product of the dense features of a node with weights."""
    cdef:
        Py_ssize_t F = p.n_features, f, a
        const floating* features = row_of_features(p, node, <floating*> NULL)
        double sums[4]
    # Four sums, since each addition waits for the previous addition.
    sums[0] = sums[1] = sums[2] = sums[3] = 0.0
    for f in range(F // 4):
        for a in range(4):
            sums[a] += weights[4 * f + a] * features[4 * f + a]
    for f in range(F - F % 4, F):
        sums[0] += weights[f] * features[f]
    return (sums[0] + sums[1]) + (sums[2] + sums[3])


cdef inline void score_states(const Examples* p, Py_ssize_t node, const double* x, Workspace* workspace,
                              double* scores, floating* precision) noexcept nogil:
    """Compute the score of each state of a node from its features."""
    cdef:
        Py_ssize_t C = p.n_columns, n_nonzero, f, a
        Py_ssize_t kind = 0 if p.node_type == NULL else p.node_type[node]
        double value
    if C == 1:
        value = 0.0 if p.constant == 0 else p.constant * x[p.intercept_at + kind]
        if p.feature_ptr == NULL:
            value += product_of_features(p, node, x + kind * p.n_features, <floating*> NULL)
        else:
            n_nonzero = find_nonzero(p, node, workspace, <floating*> NULL)
            for f in range(n_nonzero):
                value += workspace.factors[f] * x[workspace.nonzero[f]]
        scores[0] = -0.5 * value
        scores[1] = 0.5 * value
    else:
        n_nonzero = find_nonzero(p, node, workspace, <floating*> NULL)
        sum_weighted_rows(x, workspace.nonzero, workspace.factors, n_nonzero, C, scores)
        if p.constant != 0:
            for a in range(C):
                scores[a] += p.constant * x[p.intercept_at + kind * C + a]
    if p.barred != NULL:
        for a in range(p.n_states):
            if p.barred[node * p.n_states + a]:
                scores[a] = -INFINITY


cdef inline double most_violated(const Examples* p, Py_ssize_t i, const double* x, Workspace* workspace,
                                 floating* precision) noexcept nogil:
    """Find labels of maximal cost plus score, in ``workspace.found``; return their excess over the true score."""
    cdef:
        Py_ssize_t K = p.n_states, first = p.node_ptr[i], s, k, a
        double value, total = 0.0
        const double* table
        const double* cost
        double* scores
    for s in range(first, p.node_ptr[i + 1]):
        scores = workspace.scores + (s - first) * K
        score_states(p, s, x, workspace, scores, <floating*> NULL)
        total -= scores[p.labels[s]]
        cost = p.cost + p.labels[s] * K
        value = 1.0 if p.node_weight == NULL else p.node_weight[s]
        for a in range(K):
            scores[a] += value * cost[a]
    for k in range(p.edge_ptr[i], p.edge_ptr[i + 1]):
        table = table_towards(p, <int32_t> (2 * k), workspace, <floating*> NULL)
        total -= table[p.labels[p.edges[2 * k]] * p.width + p.labels[p.edges[2 * k + 1]]]
    if p.has_cycles[i]:
        return total + enumerate_labelings(p, i, workspace, <floating*> NULL)
    return total + pass_messages(p, i, workspace, <floating*> NULL)


cdef inline double enumerate_labelings(const Examples* p, Py_ssize_t i, Workspace* workspace,
                                       floating* precision) noexcept nogil:
    """Find the best labeling by enumeration, node by node, given the states of earlier nodes."""
    cdef:
        Py_ssize_t K = p.n_states, first = p.node_ptr[i], n_nodes = p.node_ptr[i + 1] - first, depth = 0, a, k, other
        int32_t half_edge
        double best = -INFINITY, value
        double* local
        const double* table
        bint fresh = True
    workspace.partial[0] = 0.0
    while depth >= 0:
        local = workspace.local + depth * K
        if fresh:
            workspace.tried[depth] = -1
            for a in range(K):
                local[a] = workspace.scores[depth * K + a]
            for k in range(p.earlier_ptr[first + depth], p.earlier_ptr[first + depth + 1]):
                half_edge = p.earlier[k]
                other = p.edges[2 * (half_edge >> 1) + 1 - (half_edge & 1)] - first
                table = table_towards(p, half_edge, workspace, <floating*> NULL) + workspace.tried[other]
                for a in range(K):
                    local[a] += table[a * p.width]
        workspace.tried[depth] += 1
        fresh = False
        if workspace.tried[depth] == K:
            depth -= 1
            continue
        value = workspace.partial[depth] + local[workspace.tried[depth]]
        if depth < n_nodes - 1:
            depth += 1
            workspace.partial[depth] = value
            fresh = True
        elif value > best:
            best = value
            for k in range(n_nodes):
                workspace.found[k] = workspace.tried[k]
    return best


cdef inline double pass_messages(const Examples* p, Py_ssize_t i, Workspace* workspace,
                                 floating* precision) noexcept nogil:
    """Find the best labeling of a forest, by max-product messages from the leaves to the roots."""
    cdef:
        Py_ssize_t K = p.n_states, first = p.node_ptr[i], s, a, b, place
        int32_t parent, best
        double top, total = 0.0
        const double* table
        double* scores
        double* target
    for place in range(p.node_ptr[i + 1] - 1, first - 1, -1):
        s = p.order[place]
        parent = p.parent[s]
        if parent < 0:
            continue
        table = table_towards(p, p.half_edge[s], workspace, <floating*> NULL)
        scores = workspace.scores + (s - first) * K
        target = workspace.scores + (parent - first) * K
        max_sum(table, scores, K, p.width, workspace.best)
        for b in range(K):
            target[b] += workspace.best[b]
    # If K is odd, the padding must not be the maximum.
    workspace.best[p.width - 1] = -INFINITY
    for place in range(first, p.node_ptr[i + 1]):
        s = p.order[place]
        parent = p.parent[s]
        scores = workspace.scores + (s - first) * K
        if parent >= 0:
            # Seen from the other end, so that the states of this end are contiguous.
            table = table_towards(p, p.half_edge[s] ^ 1, workspace, <floating*> NULL)
            table += workspace.found[parent - first] * p.width
        for a in range(K):
            workspace.best[a] = scores[a] if parent < 0 else scores[a] + table[a]
        top = row_max(workspace.best, p.width)
        best = 0
        while best < K - 1 and workspace.best[best] != top:
            best += 1
        workspace.found[s - first] = best
        if parent < 0:
            total += top
    return total


cdef inline void add_entry(Slope* slope, Py_ssize_t weight, double value) noexcept nogil:
    cdef Py_ssize_t k
    if slope.total != NULL:
        slope.total[weight] += value
        return
    k = slope.place[weight]
    # `place` may hold stale values of earlier slopes.
    if k >= slope.n_entries or slope.entries[k] != weight:
        k = slope.n_entries
        slope.n_entries += 1
        slope.place[weight] = <int32_t> k
        slope.entries[k] = <int32_t> weight
        slope.values[k] = 0.0
    slope.values[k] += value


cdef inline void add_difference(Slope* slope, Py_ssize_t n_columns, Py_ssize_t at, int32_t truth, int32_t found,
                                double value) noexcept nogil:
    """Add a feature value to the weight of the found state and subtract it from the weight of the true state."""
    if n_columns == 1:
        add_entry(slope, at, value if found > truth else -value)
    else:
        add_entry(slope, at + found, value)
        add_entry(slope, at + truth, -value)


cdef inline void add_features(const Examples* p, Slope* slope, Py_ssize_t kind, Py_ssize_t node, double value,
                              floating* precision) noexcept nogil:
    """Add the features of a node, each with one weight, to a dense slope."""
    cdef:
        Py_ssize_t f
        const floating* features = row_of_features(p, node, <floating*> NULL)
        double* total = slope.total + kind * p.n_features
    for f in range(p.n_features):
        total[f] += value * features[f]


cdef inline double cost_of_labels(const Examples* p, Py_ssize_t i, const Workspace* workspace,
                                  floating* precision) noexcept nogil:
    """Return the offset of the plane of the found labels: the cost of example i times its weight."""
    cdef:
        Py_ssize_t first = p.node_ptr[i], s
        int32_t truth, found
        double cost = 0.0
    for s in range(first, p.node_ptr[i + 1]):
        truth, found = p.labels[s], workspace.found[s - first]
        if truth != found:
            cost += p.cost[truth * p.n_states + found] * (1.0 if p.node_weight == NULL else p.node_weight[s])
    return p.weight[i] * cost


cdef inline void add_tables(const Examples* p, Py_ssize_t i, const Workspace* workspace, Slope* slope,
                            floating* precision) noexcept nogil:
    """Add the table statistics of the found labels of example i to the slope."""
    cdef:
        Py_ssize_t K = p.n_states, R = p.n_edge_features, first = p.node_ptr[i], k, r, at, tail, head, true_cell, cell
        double value
        const floating* edge_weight = <const floating*> p.edge_weight
    for k in range(p.edge_ptr[i], p.edge_ptr[i + 1]):
        tail, head = p.edges[2 * k], p.edges[2 * k + 1]
        true_cell = p.labels[tail] * K + p.labels[head]
        cell = workspace.found[tail - first] * K + workspace.found[head - first]
        if cell == true_cell:
            continue
        for r in range(R):
            value = p.weight[i] if edge_weight == NULL else p.weight[i] * edge_weight[k * R + r]
            at = p.tables_at + (p.edge_type[k] * R + r) * p.n_table_weights
            add_entry(slope, at + p.index[cell], value * p.sign[cell])
            add_entry(slope, at + p.index[true_cell], -value * p.sign[true_cell])


cdef inline double find_plane(const Examples* p, Py_ssize_t i, Workspace* workspace,
                              floating* precision) noexcept nogil:
    """Compute the plane of the found labels of example i: return its offset, write its slope to the workspace."""
    cdef:
        Py_ssize_t C = p.n_columns, first = p.node_ptr[i], s, k, kind, n_nonzero
        int32_t truth, found
        double factor = p.weight[i]
        Slope* slope = &workspace.slope
    slope.n_entries = 0
    for s in range(first, p.node_ptr[i + 1]):
        truth, found = p.labels[s], workspace.found[s - first]
        if truth == found:
            continue
        kind = 0 if p.node_type == NULL else p.node_type[s]
        if C == 1 and slope.total != NULL and p.feature_ptr == NULL:
            add_features(p, slope, kind, s, factor if found > truth else -factor, <floating*> NULL)
        else:
            n_nonzero = find_nonzero(p, s, workspace, <floating*> NULL)
            for k in range(n_nonzero):
                add_difference(slope, C, workspace.nonzero[k] * C, truth, found, factor * workspace.factors[k])
        if p.constant != 0:
            add_difference(slope, C, p.intercept_at + kind * C, truth, found, factor * p.constant)
    add_tables(p, i, workspace, slope, <floating*> NULL)
    return cost_of_labels(p, i, workspace, <floating*> NULL)
