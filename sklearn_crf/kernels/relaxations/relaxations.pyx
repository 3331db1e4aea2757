"""Relaxations of the best labeling: steps of their solvers, and the search for integral solutions."""

from libc.math cimport INFINITY, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp cimport bool

from sklearn_crf.kernels.messages.field cimport Field, open_field
from sklearn_crf.kernels.messages.field cimport Workspace as MessageWorkspace
from sklearn_crf.kernels.relaxations.best_pair cimport Pair, best_pair
from sklearn_crf.kernels.relaxations.joint_states cimport BINARY_PAIR, Factor, Kind, Workspace, best_state, score_of


# One pass of the alternating direction method: a best joint state and a quadratic problem for each factor.
#
# The quadratic problem of a factor is, over distributions u of its joint states y with marginals q_j of its nodes,
#
#     min_u  1/2 sum_j |q_j - a_j|^2 - sum_y u(y) c(y)
#
# Pairs of binary nodes have a closed-form solution (Martins et al. 2011). Other factors keep an active set: a few joint
# states whose marginals are affinely independent. The best distribution over the active set solves a small linear
# system; then the joint state with the largest gradient joins the set (Martins et al. 2015). Entry (y, y') of the
# system is the number of nodes in which y and y' agree, plus one. The added one makes the system positive definite, and
# does not change the solution because u sums to one.

cdef enum:
    MOST_INNER = 200

# Squared distance below which a joint state counts as in the span of others; its marginals are zeros and ones.
cdef double DEPENDENT = 1e-9


cdef struct Active:
    Py_ssize_t n
    int32_t* place  # (capacity, arity)
    double* weight  # (capacity,)
    double* score  # (capacity,) c of each joint state


cdef inline double clipped(double x) noexcept nogil:
    return 0.0 if x < 0 else 1.0 if x > 1 else x


cdef inline void solve_binary_pair(const double* score, const double* a, Py_ssize_t width, double scale,
                                   double* q) noexcept nogil:
    """Solve the problem of a binary pair in closed form, by the probabilities of state 1."""
    cdef:
        double pair = scale * (score[3] - score[2] - score[1] + score[0]) / 2
        double x = (1 + a[1] - a[0] + scale * (score[2] - score[0])) / 2
        double y = (1 + a[width + 1] - a[width] + scale * (score[1] - score[0])) / 2
        bint flipped = pair < 0
    if flipped:
        # Swapping the states of the second node makes the pair attractive.
        x += pair
        y = 1 - y
        pair = -pair
    if x > y + pair:
        x, y = clipped(x), clipped(y + pair)
    elif y > x + pair:
        x, y = clipped(x + pair), clipped(y)
    else:
        x = clipped((x + y + pair) / 2)
        y = x
    if flipped:
        y = 1 - y
    q[0], q[1], q[width], q[width + 1] = 1 - x, x, 1 - y, y


cdef inline Py_ssize_t n_agreeing(const int32_t* x, const int32_t* y, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t j, total = 0
    for j in range(n):
        total += x[j] == y[j]
    return total


cdef inline void solve_lower(const double* L, Py_ssize_t n, Py_ssize_t stride, double* x) noexcept nogil:
    cdef Py_ssize_t i, j
    for i in range(n):
        for j in range(i):
            x[i] -= L[i * stride + j] * x[j]
        x[i] /= L[i * stride + i]


cdef inline void solve_upper(const double* L, Py_ssize_t n, Py_ssize_t stride, double* x) noexcept nogil:
    cdef Py_ssize_t i, j
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            x[i] -= L[j * stride + i] * x[j]
        x[i] /= L[i * stride + i]


cdef inline double append_row(const Factor* f, const Active* active, Py_ssize_t n, const int32_t* state, double* L,
                              Py_ssize_t stride, double* row) noexcept nogil:
    """Compute the row of the Cholesky factor for a new joint state; return the square of its diagonal entry."""
    cdef:
        Py_ssize_t i
        double squared = f.arity + 1
    for i in range(n):
        row[i] = n_agreeing(active.place + i * f.arity, state, f.arity) + 1
    solve_lower(L, n, stride, row)
    for i in range(n):
        squared -= row[i] * row[i]
    return squared


cdef inline void factorise(const Factor* f, const Active* active, Py_ssize_t first, double* L,
                           Py_ssize_t stride) noexcept nogil:
    """Compute the Cholesky factor of the system, from row ``first`` on."""
    cdef:
        Py_ssize_t i
        double squared
    for i in range(first, active.n):
        squared = append_row(f, active, i, active.place + i * f.arity, L, stride, L + i * stride)
        L[i * stride + i] = sqrt(squared if squared > DEPENDENT else DEPENDENT)


cdef inline void drop(const Factor* f, Active* active, Py_ssize_t gone) noexcept nogil:
    cdef Py_ssize_t i, j
    active.n -= 1
    for i in range(gone, active.n):
        active.weight[i] = active.weight[i + 1]
        active.score[i] = active.score[i + 1]
        for j in range(f.arity):
            active.place[i * f.arity + j] = active.place[(i + 1) * f.arity + j]


cdef inline void put(const Factor* f, Active* active, Py_ssize_t i, const int32_t* state, double score,
                     double weight) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(f.arity):
        active.place[i * f.arity + j] = state[j]
    active.score[i], active.weight[i] = score, weight


cdef inline double best_weights(const Factor* f, Active* active, const Workspace* workspace, double scale,
                                Py_ssize_t stride) noexcept nogil:
    """Solve for the weights of active joint states, ignoring signs, in ``workspace.v``; return their common gain."""
    cdef:
        Py_ssize_t i, j, n = active.n
        double sum_b = 0, sum_ones = 0, multiplier
    for i in range(n):
        workspace.b[i] = scale * active.score[i]
        for j in range(f.arity):
            workspace.b[i] += workspace.a[j * f.width + active.place[i * f.arity + j]]
        workspace.ones[i] = 1
    solve_lower(workspace.system, n, stride, workspace.b)
    solve_upper(workspace.system, n, stride, workspace.b)
    solve_lower(workspace.system, n, stride, workspace.ones)
    solve_upper(workspace.system, n, stride, workspace.ones)
    for i in range(n):
        sum_b += workspace.b[i]
        sum_ones += workspace.ones[i]
    multiplier = (1 - sum_b) / sum_ones
    for i in range(n):
        workspace.v[i] = workspace.b[i] + multiplier * workspace.ones[i]
    return 1 - multiplier


cdef inline Py_ssize_t first_to_vanish(const double* weight, const double* towards, Py_ssize_t n,
                                       double* share) noexcept nogil:
    """Return the weight that reaches zero first on the line to new weights, or -1; write the step length to `share`."""
    cdef Py_ssize_t i, gone = -1
    share[0] = 1
    for i in range(n):
        if towards[i] < 0 and weight[i] <= share[0] * (weight[i] - towards[i]):
            share[0] = weight[i] / (weight[i] - towards[i])
            gone = i
    return gone


cdef inline void exchange(const Factor* f, Active* active, const int32_t* state, double score, double* w, double* L,
                          Py_ssize_t stride) noexcept nogil:
    """Replace an active joint state by a new state in their span, whose row of the factor is ``w``."""
    cdef:
        Py_ssize_t i, gone = -1
        double length = INFINITY
    solve_upper(L, active.n, stride, w)
    for i in range(active.n):
        if w[i] > 1e-9 and active.weight[i] < length * w[i]:
            length = active.weight[i] / w[i]
            gone = i
    if gone < 0:
        return
    for i in range(active.n):
        active.weight[i] -= length * w[i]
    put(f, active, gone, state, score, length)
    factorise(f, active, gone, L, stride)


cdef inline void marginals_of(const Factor* f, const Active* active, double* q) noexcept nogil:
    cdef Py_ssize_t i, j
    for j in range(f.arity * f.width):
        q[j] = 0
    for i in range(active.n):
        for j in range(f.arity):
            q[j * f.width + active.place[i * f.arity + j]] += active.weight[i]


cdef inline void solve_active(const Factor* f, Kind kind, Active* active, Workspace* workspace, double scale,
                              Py_ssize_t capacity, double* q) noexcept nogil:
    """Solve the quadratic problem, starting from the current active joint states."""
    cdef:
        Py_ssize_t i, j, gone, _inner
        double level, share, value, squared, score
    if active.n == 0:
        best_state(f, kind, workspace.a, scale, workspace, workspace.best)
        active.n = 1
        put(f, active, 0, workspace.best, score_of(f, kind, workspace.best), 1)
    factorise(f, active, 0, workspace.system, capacity)
    for _inner in range(MOST_INNER):
        level = best_weights(f, active, workspace, scale, capacity)
        gone = first_to_vanish(active.weight, workspace.v, active.n, &share)
        for i in range(active.n):
            active.weight[i] += share * (workspace.v[i] - active.weight[i])
        if gone >= 0:
            drop(f, active, gone)
            factorise(f, active, gone, workspace.system, capacity)
            continue
        marginals_of(f, active, q)
        for j in range(f.arity * f.width):
            workspace.gain[j] = workspace.a[j] - q[j]
        value = best_state(f, kind, workspace.gain, scale, workspace, workspace.best)
        if value <= level + 1e-11 * (1 + (level if level > 0 else -level)):
            return
        score = score_of(f, kind, workspace.best)
        squared = append_row(f, active, active.n, workspace.best, workspace.system, capacity, workspace.h)
        if squared <= DEPENDENT:
            exchange(f, active, workspace.best, score, workspace.h, workspace.system, capacity)
        elif active.n < capacity:
            put(f, active, active.n, workspace.best, score, 0)
            active.n += 1
            factorise(f, active, active.n - 1, workspace.system, capacity)
        else:
            return
    marginals_of(f, active, q)


cdef inline void partition(Workspace* workspace, double* work, int32_t* numbers, Py_ssize_t arity, Py_ssize_t width,
                           Py_ssize_t capacity) noexcept nogil:
    """Return views into a workspace of 3 arity width + capacity (capacity + 4) + arity numbers and 2 arity integers."""
    cdef Py_ssize_t row = arity * width
    workspace.r, workspace.a, workspace.gain = work, work + row, work + 2 * row
    workspace.system = work + 3 * row
    workspace.b = workspace.system + capacity * capacity
    workspace.ones = workspace.b + capacity
    workspace.v = workspace.b + 2 * capacity
    workspace.h = workspace.b + 3 * capacity
    workspace.sorted = workspace.b + 4 * capacity
    workspace.order, workspace.best = numbers, numbers + arity


def solve_factors(
    object pieces,  # IN arrays of the factors
    const double[:, ::1] share,  # IN (N, K) scores of nodes divided by their number of factors
    const double[:, ::1] fractional,  # IN (N, K) consensus marginals
    const double[:, ::1] multipliers,  # IN (L, K) by slot: scores moved into the factor; they sum to zero for each node
    double penalty,
    double[:, ::1] marginals,  # OUT (L, K)
    double[::1] best,  # OUT (F,) best score of each factor with its share of the nodes
    int32_t[::1] n_active,  # IN OUT (F,)
    int32_t[::1] active_place,  # IN OUT
    double[::1] active_weight,  # IN OUT
    double[::1] active_score,  # IN OUT
    Py_ssize_t start,
    Py_ssize_t stop,  # factors start to stop - 1
    double[::1] work,  # workspace
    int32_t[::1] numbers,  # workspace
):
    """Compute the best score and solve the quadratic problem of each factor; the best scores sum to an upper bound."""
    cdef:
        const int32_t[::1] kinds = pieces.kind
        const int64_t[::1] scope_ptr = pieces.scope_ptr, cell_ptr = pieces.cell_ptr, place_ptr = pieces.place_ptr
        const int64_t[::1] active_ptr = pieces.active_ptr, active_place_ptr = pieces.active_place_ptr
        const int32_t[::1] scope = pieces.scope, place = pieces.place, n_states = pieces.n_states
        const int32_t[:, ::1] run = pieces.run
        const double[::1] score = pieces.score
        Py_ssize_t most_active = pieces.most_active, largest_arity = pieces.largest_arity, width = share.shape[1]
        Py_ssize_t i, j, k, slot, node, capacity
        double scale = 1 / penalty
        Kind kind
        Factor f
        Active active
        Workspace workspace
    if start >= stop:
        return
    partition(&workspace, &work[0], &numbers[0], largest_arity, width, most_active)
    f.width = width
    f.n_states = &n_states[0]
    with nogil:
        for i in range(start, stop):
            kind = <Kind> kinds[i]
            f.arity = scope_ptr[i + 1] - scope_ptr[i]
            f.n_cells = cell_ptr[i + 1] - cell_ptr[i]
            f.node = &scope[scope_ptr[i]]
            f.place = &place[place_ptr[i]]
            f.run = &run[cell_ptr[i], 0]
            f.score = &score[cell_ptr[i]]
            for j in range(f.arity):
                slot, node = scope_ptr[i] + j, f.node[j]
                for k in range(width):
                    workspace.r[j * width + k] = share[node, k] + multipliers[slot, k]
                    workspace.a[j * width + k] = fractional[node, k] + scale * workspace.r[j * width + k]
            best[i] = best_state(&f, kind, workspace.r, 1, &workspace, workspace.best)
            if kind == BINARY_PAIR:
                solve_binary_pair(f.score, workspace.a, width, scale, &marginals[scope_ptr[i], 0])
                continue
            capacity = active_ptr[i + 1] - active_ptr[i]
            active.n = n_active[i]
            active.place = &active_place[active_place_ptr[i]]
            active.weight = &active_weight[active_ptr[i]]
            active.score = &active_score[active_ptr[i]]
            solve_active(&f, kind, &active, &workspace, scale, capacity, &marginals[scope_ptr[i], 0])
            n_active[i] = <int32_t> active.n


# Incremental subgradient steps, edge by edge, for the dual of the linear relaxation over single edges.
#
# Edge F = (s, t) holds a share of the scores of its ends, lambda_s^F = base_s + moved_s^F. A step on F lowers one state
# of each end in ``moved``, and distributes the difference equally among all edges of the end. This changes only
# ``base``, so that the cost of a step does not depend on degrees.

cdef inline uint64_t next_random(uint64_t* state) noexcept nogil:
    """Return the next number of a 64-bit xorshift generator with a multiplier (Marsaglia 2003)."""
    state[0] ^= state[0] >> 12
    state[0] ^= state[0] << 25
    state[0] ^= state[0] >> 27
    return state[0] * <uint64_t> 2685821657736338717


cdef inline Py_ssize_t below(uint64_t* state, Py_ssize_t n) noexcept nogil:
    """Return a random number from 0 to n - 1, for n below 2^31, from the upper bits, which have better quality."""
    return <Py_ssize_t> (((next_random(state) >> 33) * <uint64_t> n) >> 31)


def shuffle(
    int32_t[::1] items,  # IN OUT
    uint64_t[::1] state,  # IN OUT (1,) not zero
):
    """Shuffle the items in place (Fisher-Yates)."""
    cdef:
        Py_ssize_t i, j
        int32_t kept
    with nogil:
        for i in range(items.shape[0] - 1, 0, -1):
            j = below(&state[0], i + 1)
            kept = items[i]
            items[i] = items[j]
            items[j] = kept


def pick_labels(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const int32_t[::1] picked,  # IN (2E,) by half-edge: state of its end in the best pair of the edge
    uint64_t[::1] state,  # IN OUT (1,) not zero
    int32_t[::1] labels,  # OUT (N,) unchanged for nodes without edges
):
    """Assign each node its state in the best pair of a random edge."""
    cdef Py_ssize_t s, degree
    with nogil:
        for s in range(labels.shape[0]):
            degree = ptr[s + 1] - ptr[s]
            if degree:
                labels[s] = picked[half_edge[ptr[s] + below(&state[0], degree)]]


cdef inline void add_rows(const double* x, const double* y, Py_ssize_t n, double* out) noexcept nogil:
    cdef Py_ssize_t a
    for a in range(n):
        out[a] = x[a] + y[a]


def incremental_sweep(
    object field,  # IN arrays of the model, unary as scores
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] order,  # IN (E,)
    const double[::1] share,  # IN (N,) one over the degree
    double step,
    double[:, ::1] moved,  # IN OUT (2E, width) by half-edge
    double[:, ::1] base,  # IN OUT (N, width)
    int32_t[::1] picked,  # OUT (2E,) by half-edge
    double[::1] work,  # workspace
):
    """Make a subgradient step and a projection for each edge in turn."""
    cdef:
        Field[double] f
        Pair best
        Py_ssize_t i, W = base.shape[1]
        int32_t e, s, t
        double* x = &work[0]
        double* y = x + W
    open_field(field, &f)
    with nogil:
        for i in range(order.shape[0]):
            e = order[i]
            s, t = edges[e, 0], edges[e, 1]
            add_rows(&base[s, 0], &moved[2 * e, 0], W, x)
            add_rows(&base[t, 0], &moved[2 * e + 1, 0], W, y)
            best_pair(&f, e, x, y, f.states_of(s), f.states_of(t), y + W, &best)
            moved[2 * e, best.a] -= step
            moved[2 * e + 1, best.b] -= step
            base[s, best.a] += step * share[s]
            base[t, best.b] += step * share[t]
            picked[2 * e] = <int32_t> best.a
            picked[2 * e + 1] = <int32_t> best.b


def dual_value(
    object field,  # IN arrays of the model, unary as scores
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const double[::1] share,  # IN (N,) one over the degree, 0 without edges
    const double[:, ::1] moved,  # IN (2E, width) by half-edge
    double[:, ::1] base,  # OUT (N, width) set so that the shares of the edges of a node sum to its scores
    int32_t[::1] picked,  # OUT (2E,) by half-edge
    double[::1] work,  # workspace
):
    """Return the sum of the best scores of all edges and of nodes without edges: an upper bound on the best score.

    ``base`` is recomputed from ``moved``, so that rounding errors do not add up over sweeps.
    """
    cdef:
        Field[double] f
        Pair best
        Py_ssize_t s, t, e, a, q, W = base.shape[1]
        double total = 0.0, top
        const double* unary
        double* x = &work[0]
        double* y = x + W
    open_field(field, &f)
    unary = f.unary
    with nogil:
        for s in range(base.shape[0]):
            for a in range(W):
                base[s, a] = unary[s * W + a]
            if f.ptr[s] == f.ptr[s + 1]:
                top = -INFINITY
                for a in range(W):
                    top = max(top, base[s, a])
                total += top
                continue
            for q in range(f.ptr[s], f.ptr[s + 1]):
                for a in range(W):
                    base[s, a] -= moved[f.half_edge[q], a]
            for a in range(W):
                base[s, a] *= share[s]
        for e in range(edges.shape[0]):
            s, t = edges[e, 0], edges[e, 1]
            add_rows(&base[s, 0], &moved[2 * e, 0], W, x)
            add_rows(&base[t, 0], &moved[2 * e + 1, 0], W, y)
            best_pair(&f, <int> e, x, y, f.states_of(s), f.states_of(t), y + W, &best)
            total += best.score
            picked[2 * e] = <int32_t> best.a
            picked[2 * e + 1] = <int32_t> best.b
    return total


def decode_shares(
    object field,  # IN arrays of the model, unary as scores
    const double[:, ::1] moved,  # IN (2E, width) by half-edge
    const double[:, ::1] base,  # IN (N, width)
    int direction,  # 1: first to last node; -1: reversed
    int32_t[::1] labels,  # OUT (N,)
    double[::1] work,  # workspace
):
    """Assign each node in turn its best state, given labels of earlier nodes and the best states of later nodes.

    A later neighbour counts with its share in the connecting edge.
    If earlier labels forbid all states of a node, it gets its first state.
    """
    cdef:
        Field[double] f
        MessageWorkspace[double] workspace
        Py_ssize_t i, s, t, q, a, best, n_nodes = labels.shape[0], W = base.shape[1]
        int32_t half_edge
        double shift = 0
        const double* unary
        double* total
        double* x
        double* fresh
    open_field(field, &f)
    workspace.open(f, &work[0])
    unary = f.unary
    total, x, fresh = workspace.total, workspace.cavity, workspace.fresh
    with nogil:
        for i in range(n_nodes):
            s = i if direction > 0 else n_nodes - 1 - i
            for a in range(W):
                total[a] = unary[s * W + a]
            for q in range(f.ptr[s], f.ptr[s + 1]):
                t = f.neighbor[q]
                half_edge = f.half_edge[q]
                if direction * (t - s) < 0:
                    for a in range(f.n_columns):
                        total[a] += f.pair_score(half_edge, a, labels[t])
                    continue
                add_rows(&base[t, 0], &moved[half_edge ^ 1, 0], W, x)
                f.apply_factor(half_edge ^ 1, <const double*> x, f.states_of(t), fresh, workspace.factor, &shift)
                for a in range(f.n_columns):
                    total[a] += fresh[a]
            best = 0
            for a in range(1, f.states_of(s)):
                if total[a] > total[best]:
                    best = a
            labels[s] = <int32_t> best


# Branch and bound over the states of nodes, until optimality or the end of a budget.

cdef extern from "branch_and_bound.hpp" namespace "sklearn_crf" nogil:
    cdef cppclass BranchAndBound:
        BranchAndBound(
            int32_t n_nodes, const int64_t* n_states, const double* unary, int64_t n_factors,
            const int64_t* factor_ptr, const int32_t* scope, const int64_t* start, const double* costs
        ) except +
        void run(
            double upper, double margin, int32_t n_sweeps, double most_work, uint64_t seed, int32_t* labels
        ) except +
        double bound
        double best
        double work
        bool complete


def branch_and_bound(
    const int64_t[::1] n_states,  # IN (N,)
    const double[::1] unary,  # IN costs of states, node by node, not negative
    const int64_t[::1] factor_ptr,  # IN (F + 1,)
    const int32_t[::1] scope,  # IN at least two nodes for each factor
    const int64_t[::1] start,  # IN (F,) first cost of each factor
    const double[::1] costs,  # IN in C order, not negative
    double upper,  # cost of the best known labeling
    double margin,  # smallest improvement of a better labeling
    int n_sweeps,  # number of diffusion sweeps
    double most_work,  # limit on table entries read
    uint64_t seed,  # determines the sets of nodes around the best labeling
    int32_t[::1] labels,  # INOUT (N,) the best labeling, or -1
):
    """Return a lower bound, the cost of the best labeling, the work, and whether the labeling is proven optimal."""
    cdef BranchAndBound* search
    with nogil:
        search = new BranchAndBound(
            <int32_t> n_states.shape[0],
            &n_states[0] if n_states.shape[0] else NULL,
            &unary[0] if unary.shape[0] else NULL,
            start.shape[0],
            &factor_ptr[0],
            &scope[0] if scope.shape[0] else NULL,
            &start[0] if start.shape[0] else NULL,
            &costs[0] if costs.shape[0] else NULL,
        )
        try:
            search.run(upper, margin, n_sweeps, most_work, seed, &labels[0] if labels.shape[0] else NULL)
            with gil:
                found = search.bound, search.best, search.work, search.complete
        finally:
            del search
    return found
