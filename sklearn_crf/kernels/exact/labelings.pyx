"""Labels and samples of forests, marginals of copies of one small graph, and scores and statistics of labelings."""

from cython cimport floating
from libc.math cimport INFINITY, exp, fabs
from libc.stdint cimport int32_t
from libc.string cimport memset

from sklearn_crf.kernels.decoding cimport decode_in_order
from sklearn_crf.kernels.messages.field cimport Field, open_field
from sklearn_crf.kernels.rows cimport exponentiate_all, logarithms


# Decoding of labels along a forest: the best labeling, or random samples.

def decode(
    object field,  # IN arrays of the model, unary as scores
    const floating[:, ::1] messages,  # IN (2E, width) max-product messages
    const int32_t[::1] order,  # IN (N,) every node after its parent
    const int32_t[::1] rank,  # IN (N,) position of each node in order
    int32_t[::1] labels,  # OUT (N,)
    double[::1] work,  # workspace
):
    """Assign each node in turn its best state, given labelled neighbours and messages from all other neighbours.

    If the labels of its neighbours forbid all states, a node takes the best state by messages alone. Return the last
    such node, or -1.
    """
    cdef:
        Field[floating] f
        Py_ssize_t failed
        const floating* values = &messages[0, 0] if messages.shape[0] else NULL
    if not order.shape[0]:
        return -1
    open_field(field, &f)
    with nogil:
        failed = decode_in_order(&f, values, &order[0], &rank[0], order.shape[0], &labels[0], &work[0])
    return failed


def sample_forest(
    object field,  # IN arrays of the model
    const floating[:, ::1] upward,  # IN (N, width) score of each state of a node with its whole subtree summed out
    const int32_t[::1] order,  # IN (N,) every node after its parent
    const int32_t[::1] parent_slot,  # IN (N,) -1 at a root
    const double[:, ::1] uniform,  # IN (n_samples, N) numbers in [0, 1)
    int32_t[:, ::1] labels,  # OUT (n_samples, N)
    Py_ssize_t start,
    Py_ssize_t stop,  # samples to draw
    double[::1] work,  # workspace
):
    """Sample labelings from the root to the leaves, each node given its parent."""
    cdef:
        Field[floating] f
        Py_ssize_t i, k, s, a, n
        double top, total
        int32_t slot, parent_label
    open_field(field, &f)
    with nogil:
        for k in range(start, stop):
            for i in range(order.shape[0]):
                s = order[i]
                n = f.states_of(s)
                slot = parent_slot[s]
                parent_label = labels[k, f.neighbor[slot]] if slot >= 0 else 0
                top = -INFINITY
                for a in range(n):
                    work[a] = upward[s, a]
                    if slot >= 0:
                        work[a] += f.pair_score(f.half_edge[slot], a, parent_label)
                    top = work[a] if work[a] > top else top
                total = 0
                for a in range(n):
                    total += exp(work[a] - top)
                    work[a] = total
                # The second condition: rounding must not select a state of probability zero.
                for a in range(n):
                    if work[a] > uniform[k, s] * total or work[a] == total:
                        labels[k, s] = <int32_t> a
                        break


# Exact marginals of many copies of a forest of two-state nodes, each copy with its own node scores.
#
# Let h be the odds of the second state of a node, given its subtree. The message from the node along the table t is
#
#     m = (t_01 + h t_11) / (t_00 + h t_10).
#
# Several copies are processed together, so that every step operates on whole vectors.

# Number of copies that are processed together. The last group is padded, so results do not depend on the position.
cdef enum:
    LANES = 32
SIDE_BY_SIDE = LANES

# Number of workspace rows for each node.
ROWS_OF_A_NODE = 7


cdef struct Forest:
    Py_ssize_t n_nodes  # L
    const int32_t* order  # (L,) every node after its parent
    const int32_t* parent  # (L,) -1 at a root
    const double* tables  # (L, 4) exp(score - maximum), by the states of a node and its parent
    const double* best  # (L,) maximum score of each table


cdef struct Workspace:
    double* odds  # (L, LANES) odds of the second state, given the subtree of a node
    double* message  # (L, LANES) messages to the parent
    double* log_z  # (L, LANES) log-partition of the subtree, given the first state of its root
    double* sums  # (L, 4, LANES) sums of pair marginals


def marginals_of_copies(
    const floating[:, ::1] unary,  # IN (n L, 2)
    const int32_t[::1] order,  # IN (L,)
    const int32_t[::1] parent,  # IN (L,)
    const double[:, ::1] tables,  # IN (L, 4)
    const double[::1] best,  # IN (L,)
    double widest,  # largest score range of a node without overflow of odds
    floating[:, ::1] posterior,  # OUT (n L, 2)
    double[:, ::1] pairs,  # OUT (L, 4) sums over copies of the marginals of each node and its parent, or (0, 4)
    double[::1] terms,  # OUT (n L,) log-partition of each component at its root, 0 elsewhere; (0,) if pairs is (0, 4)
    double[::1] work,  # workspace (ROWS_OF_A_NODE L SIDE_BY_SIDE,)
):
    """Compute the marginals; return False, without results, if the score range is too wide."""
    cdef:
        Forest forest
        Workspace workspace
        Py_ssize_t L = order.shape[0], n = unary.shape[0] // L, block, first, k, i, b
        bint fits = True, with_pairs = pairs.shape[0] > 0
    forest.n_nodes, forest.order, forest.parent = L, &order[0], &parent[0]
    forest.tables, forest.best = &tables[0, 0], &best[0]
    workspace.odds = &work[0]
    workspace.message = workspace.odds + L * LANES
    workspace.log_z = workspace.message + L * LANES
    workspace.sums = workspace.log_z + L * LANES
    with nogil:
        memset(workspace.sums, 0, 4 * L * LANES * sizeof(double))
        for block in range((n + LANES - 1) // LANES):
            first = block * LANES
            k = min(n - first, <Py_ssize_t> LANES)
            fits = read_odds(&forest, &unary[first * L, 0], k, widest, &workspace)
            if not fits:
                break
            send_to_roots(&forest, with_pairs, &workspace)
            if with_pairs:
                write_terms(&forest, k, &terms[first * L], &workspace)
            send_to_leaves(&forest, k, with_pairs, &posterior[first * L, 0], &workspace)
        if fits and with_pairs:
            for i in range(4 * L):
                pairs[i // 4, i % 4] = 0
                for b in range(LANES):
                    pairs[i // 4, i % 4] += workspace.sums[i * LANES + b]
    return fits


cdef inline bint read_odds(const Forest* forest, const floating* unary, Py_ssize_t n, double widest,
                           Workspace* workspace) noexcept nogil:
    """Compute the odds of nodes from their scores; return whether all are in range."""
    cdef:
        Py_ssize_t L = forest.n_nodes, s, b
        double difference
        bint fits = True
    for s in range(L):
        for b in range(LANES):
            workspace.odds[s * LANES + b] = workspace.log_z[s * LANES + b] = 0.0
    for b in range(n):
        for s in range(L):
            difference = <double> unary[2 * (b * L + s) + 1] - <double> unary[2 * (b * L + s)]
            # NaN is also out of range.
            fits &= fabs(difference) <= widest
            workspace.odds[s * LANES + b] = difference
            workspace.log_z[s * LANES + b] = unary[2 * (b * L + s)]
    exponentiate_all(workspace.odds, L * LANES)
    return fits


cdef inline void send_to_roots(const Forest* forest, bint with_log_z, Workspace* workspace) noexcept nogil:
    cdef:
        Py_ssize_t place, s, t, b
        double below
        const double* table
        double* odds
        double* message
        double* above
        double* log_z
        double[LANES] scale
    for place in range(forest.n_nodes - 1, -1, -1):
        s = forest.order[place]
        t = forest.parent[s]
        if t < 0:
            continue
        table = forest.tables + 4 * s
        odds = workspace.odds + s * LANES
        message = workspace.message + s * LANES
        above = workspace.odds + t * LANES
        for b in range(LANES):
            below = table[0] + odds[b] * table[2]
            scale[b] = below
            message[b] = (table[1] + odds[b] * table[3]) / below
            above[b] *= message[b]
        if with_log_z:
            logarithms[double](scale, LANES, scale)
            log_z = workspace.log_z + t * LANES
            for b in range(LANES):
                log_z[b] += workspace.log_z[s * LANES + b] + (scale[b] + forest.best[s])


cdef inline void write_terms(const Forest* forest, Py_ssize_t n, double* terms, Workspace* workspace) noexcept nogil:
    cdef:
        Py_ssize_t s, b
        double[LANES] scale
    for s in range(forest.n_nodes):
        if forest.parent[s] >= 0:
            for b in range(n):
                terms[b * forest.n_nodes + s] = 0.0
            continue
        for b in range(LANES):
            scale[b] = 1 + workspace.odds[s * LANES + b]
        logarithms[double](scale, LANES, scale)
        for b in range(n):
            terms[b * forest.n_nodes + s] = workspace.log_z[s * LANES + b] + scale[b]


cdef inline void send_to_leaves(const Forest* forest, Py_ssize_t n, bint with_pairs, floating* posterior,
                                Workspace* workspace) noexcept nogil:
    """Compute the marginal odds and probabilities of each node, and add up the pair marginals."""
    cdef:
        Py_ssize_t place, s, t, b, L = forest.n_nodes
        double zero, one, low, high
        const double* table
        double* odds
        double* sums
        double[LANES] other, first, second
    for place in range(L):
        s = forest.order[place]
        t = forest.parent[s]
        odds = workspace.odds + s * LANES
        if t >= 0:
            table = forest.tables + 4 * s
            for b in range(LANES):
                # Odds of the parent without the message of this node.
                other[b] = workspace.odds[t * LANES + b] / workspace.message[s * LANES + b]
                odds[b] *= (table[2] + other[b] * table[3]) / (table[0] + other[b] * table[1])
        for b in range(LANES):
            first[b] = 1 / (1 + odds[b])
            second[b] = odds[b] * first[b]
        for b in range(n):
            posterior[2 * (b * L + s)] = <floating> first[b]
            posterior[2 * (b * L + s) + 1] = <floating> second[b]
        if with_pairs and t >= 0:
            sums = workspace.sums + 4 * s * LANES
            for b in range(n):
                low, high = other[b] * table[1], other[b] * table[3]
                zero, one = first[b] / (table[0] + low), second[b] / (table[2] + high)
                sums[b] += zero * table[0]
                sums[LANES + b] += zero * low
                sums[2 * LANES + b] += one * table[2]
                sums[3 * LANES + b] += one * high


# Score and statistics of a labeling, each in one pass over the edges.

cdef inline double weight_of(const floating[:, ::1] edge_weight, Py_ssize_t edge, Py_ssize_t feature) noexcept nogil:
    return edge_weight[edge, feature] if edge_weight.shape[0] else 1.0


cdef inline double edge_score(const floating[:, :, :, ::1] tables, int32_t kind, const floating[:, ::1] edge_weight,
                              Py_ssize_t edge, int32_t a, int32_t b) noexcept nogil:
    cdef:
        Py_ssize_t r
        double total = 0.0
    for r in range(tables.shape[1]):
        total += weight_of(edge_weight, edge, r) * tables[kind, r, a, b]
    return total


cdef inline void count_pair(double[:, :, :, ::1] counts, int32_t kind, const floating[:, ::1] edge_weight,
                            Py_ssize_t edge, int32_t a, int32_t b) noexcept nogil:
    cdef Py_ssize_t r
    for r in range(counts.shape[1]):
        counts[kind, r, a, b] += weight_of(edge_weight, edge, r)


def labeling_terms(
    const floating[:, ::1] unary,  # IN (N, K)
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) if all weights are one
    const int32_t[::1] labels,  # IN (N,)
    double[::1] terms,  # OUT (N,) score of each node plus the scores of the edges that start from it
):
    """Compute the contribution of each node to the score of a labeling."""
    cdef:
        Py_ssize_t node, e
        int32_t tail, head
    with nogil:
        for node in range(labels.shape[0]):
            terms[node] = unary[node, labels[node]]
        for e in range(edges.shape[0]):
            tail, head = edges[e, 0], edges[e, 1]
            terms[tail] += edge_score(tables, edge_type[e], edge_weight, e, labels[tail], labels[head])


def count_pairs(
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) if all weights are one
    const int32_t[::1] labels,  # IN (N,)
    double[:, :, :, ::1] counts,  # IN OUT (T, R, K, K), initially zero
):
    """Sum the edge weights for each combination (type, feature, state, state)."""
    cdef Py_ssize_t e
    with nogil:
        for e in range(edges.shape[0]):
            count_pair(counts, edge_type[e], edge_weight, e, labels[edges[e, 0]], labels[edges[e, 1]])


def changes_of_labelings(
    const floating[:, ::1] unary,  # IN (N, K)
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) if all weights are one
    const int32_t[::1] labels,  # IN (N,)
    const int32_t[::1] others,  # IN (N,) labels to compare with
    double[::1] terms,  # OUT (N,) difference in score of each node and the edges that start from it
    floating[:, ::1] changed,  # IN OUT (N, K), initially zero: 1 at labels and -1 at others, if both differ
    double[:, :, :, ::1] counts,  # IN OUT (T, R, K, K), initially zero: differences in the sums of edge weights
):
    """Compute the differences in score and statistics of two labelings, skipping nodes and edges that agree."""
    cdef:
        Py_ssize_t n_features = tables.shape[1]
        Py_ssize_t node, e, r
        int32_t a, b, c, d, kind
        double value, total
    with nogil:
        for node in range(labels.shape[0]):
            a, c = labels[node], others[node]
            terms[node] = 0.0
            if a != c:
                changed[node, a], changed[node, c] = 1, -1
                terms[node] = <double> unary[node, a] - <double> unary[node, c]
        for e in range(edges.shape[0]):
            a, b, c, d = labels[edges[e, 0]], labels[edges[e, 1]], others[edges[e, 0]], others[edges[e, 1]]
            if a == c and b == d:
                continue
            kind, total = edge_type[e], 0.0
            for r in range(n_features):
                value = weight_of(edge_weight, e, r)
                counts[kind, r, a, b] += value
                counts[kind, r, c, d] -= value
                total += value * (<double> tables[kind, r, a, b] - <double> tables[kind, r, c, d])
            terms[edges[e, 0]] += total


def marginals_less_labels(
    const floating[:, ::1] unary,  # IN (N, K)
    const floating[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, ::1] edge_weight,  # IN (E, R), or (0, 0) if all weights are one
    const int32_t[::1] labels,  # IN (N,)
    const floating[:, ::1] marginals,  # IN (N, K)
    const double[::1] log_z_terms,  # IN (N,)
    floating[:, ::1] excess,  # OUT (N, K) marginals, minus 1 at labels
    double[:, :, :, ::1] counts,  # IN OUT (T, R, K, K), initially zero: sums of edge weights by the labels of both ends
    double[::1] terms,  # OUT (N,) log_z_terms minus the scores of each node and of the edges that start from it
    int32_t[::1] predicted,  # OUT (N,) state of largest marginal of each node, the first one if tied
):
    """Compute the loss of labels and the parts of its gradient; return False if a label is not a valid state."""
    cdef:
        bint are_states = True
        Py_ssize_t K = unary.shape[1], s, a, e, best
        int32_t tail, head
    with nogil:
        for s in range(labels.shape[0]):
            if not 0 <= labels[s] < K:
                are_states = False
                break
            best = 0
            for a in range(K):
                excess[s, a] = marginals[s, a]
                if marginals[s, a] > marginals[s, best]:
                    best = a
            predicted[s] = <int32_t> best
            excess[s, labels[s]] = excess[s, labels[s]] - 1
            terms[s] = unary[s, labels[s]]
        for e in range(edges.shape[0] if are_states else 0):
            tail, head = edges[e, 0], edges[e, 1]
            terms[tail] += edge_score(tables, edge_type[e], edge_weight, e, labels[tail], labels[head])
            count_pair(counts, edge_type[e], edge_weight, e, labels[tail], labels[head])
        for s in range(labels.shape[0] if are_states else 0):
            terms[s] = log_z_terms[s] - terms[s]
    return are_states
