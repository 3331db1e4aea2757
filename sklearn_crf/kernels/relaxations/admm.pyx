"""One pass of the alternating direction method: a best joint state and a quadratic problem for each factor.

The quadratic problem of a factor is, over distributions u of its joint states y with marginals q_j of its nodes,

    min_u  1/2 sum_j |q_j - a_j|^2 - sum_y u(y) c(y)

Pairs of binary nodes have a closed-form solution (Martins et al. 2011). Other factors keep an active set: a few joint
states whose marginals are affinely independent. The best distribution over the active set solves a small linear system;
then the joint state with the largest gradient joins the set (Martins et al. 2015). Entry (y, y') of the system is the
number of nodes in which both agree, plus one. The added one makes the system positive definite, and does not change the
solution because u sums to one.
"""

from libc.math cimport INFINITY, sqrt
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.relaxations.joint_states cimport BINARY_PAIR, Factor, Kind, Workspace, best_state, score_of

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
