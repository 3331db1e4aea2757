"""Structured hinge losses of forests and small graphs with linear scores: values, planes and Frank-Wolfe passes."""

from cython cimport floating
from libc.float cimport DBL_MIN
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free as free_memory
from libc.stdlib cimport malloc

from sklearn_crf.kernels.learning.forest_hinge cimport (
    Examples,
    Slope,
    Workspace,
    add_tables,
    cost_of_labels,
    expand_tables,
    find_nonzero,
    find_plane,
    most_violated,
    open_examples,
    partition_workspace,
)
from sklearn_crf.kernels.rows cimport prefetch


cdef extern from "weight_rows.h" nogil:
    double product(const double*, const double*, Py_ssize_t)
    void move(double, const double*, double, double*, double*, Py_ssize_t)
    void add_to_slots(double*, const int32_t*, const double*, Py_ssize_t, const double*, Py_ssize_t)
    void weigh_rows(const double*, const int32_t*, const double*, Py_ssize_t, Py_ssize_t, double*, double*)
    void move_rows(double*, double*, const int32_t*, const double*, Py_ssize_t, Py_ssize_t, double, double)

cdef extern from "shared_turns.h" nogil:
    int64_t counter_value(int64_t* counter)
    void raise_counter(int64_t* counter, int64_t value)
    void count_one(int64_t* counter)
    int64_t take_number(int64_t* next, int64_t limit)
    void wait_a_moment(int64_t n_before)


def highest_planes(
    object examples,  # IN arrays of the examples
    const floating[:, ::1] features,  # IN (N, F) of their nodes
    const double[::1] x,  # IN (n,) weights
    double[:, ::1] slopes,  # IN OUT (stop - start, n), initially zero
    double[::1] offsets,  # OUT (stop - start,)
    Py_ssize_t start,
    Py_ssize_t stop,
    double[::1] work,  # workspace
    int32_t[::1] found,  # workspace, initially zero
):
    """Compute the tangent plane of the hinge of each example at x."""
    cdef:
        Examples p
        Workspace workspace
        Py_ssize_t i
    open_examples(examples, features, &p)
    partition_workspace(&p, found.shape[0], &work[0], &found[0], &workspace)
    with nogil:
        expand_tables(&p, &x[0], &workspace)
        for i in range(start, stop):
            most_violated(&p, i, &x[0], &workspace, <floating*> NULL)
            workspace.slope.total = &slopes[i - start, 0]
            offsets[i - start] = find_plane(&p, i, &workspace, <floating*> NULL)


def sum_of_planes(
    object examples,  # IN arrays of the examples
    const floating[:, ::1] features,  # IN (N, F) of their nodes
    const double[::1] x,  # IN (n,) weights
    double[::1] slope,  # IN OUT (n,) initially zero, or (0,) if not requested
    Py_ssize_t start,
    Py_ssize_t stop,
    double[::1] work,  # workspace
    int32_t[::1] found,  # workspace, initially zero
):
    """Sum the tangent planes at x of the hinges of examples start to stop - 1; return the value."""
    cdef:
        Examples p
        Workspace workspace
        Py_ssize_t i
        double value = 0.0
    open_examples(examples, features, &p)
    partition_workspace(&p, found.shape[0], &work[0], &found[0], &workspace)
    workspace.slope.total = &slope[0] if slope.shape[0] else NULL
    with nogil:
        expand_tables(&p, &x[0], &workspace)
        for i in range(start, stop):
            value += p.weight[i] * most_violated(&p, i, &x[0], &workspace, <floating*> NULL)
            if slope.shape[0]:
                find_plane(&p, i, &workspace, <floating*> NULL)
    return value


def frank_wolfe_steps(
    list examples,  # IN arrays of each batch
    list features,  # IN (N, F) features of the nodes of each batch, or (nnz, 1) nonzero features
    const floating[:, ::1] first_features,  # IN first element of `features`
    const int32_t[::1] members,  # IN examples in the order of their steps, numbered through all batches
    const int64_t[::1] first_members,  # IN (n_batches + 1,) first example of each batch
    double[:, ::1] slopes,  # IN OUT (m, n) slope of the combined plane of each example, without its factor; (m, 0)
    # with SHARES
    const int64_t[::1] row_ptr,  # IN (m + 1,) or (1,): first entry of the row of each example, see SHARES
    int64_t[::1] row_sizes,  # IN OUT (m,) or (0,): number of used entries of each row
    int32_t[::1] row_index,  # IN OUT table weight of each entry
    double[::1] row_values,  # IN OUT
    double[:, ::1] combined,  # IN OUT (m, 3) numbers of the combined planes: OFFSET, FACTOR and SQUARE
    double[:, ::1] shares,  # IN OUT (N of all batches, K) or (0, 0): see SHARES
    double[::1] x,  # IN OUT (n,) minus the sum of all slopes, projected
    double[:, ::1] earlier,  # IN OUT (2, n) x at which labels are found, for even and for odd groups
    double[::1] free,  # IN OUT (m,) bounded entries of x before they are projected
    double[::1] mean,  # IN OUT (n,) mean of x, step k with weight k; or its lag behind x: see SHARES
    const int32_t[::1] bounded,  # IN (m,) entries of x that must not be negative
    Py_ssize_t n_steps,  # number of steps made before
    Py_ssize_t group,  # examples whose labels are found at one x
    bint ahead,  # whether labels are found before the steps of the previous group are made
    int64_t[::1] turns,  # IN OUT counters that threads share, see TAKEN and below; initially zero
    int32_t[:, ::1] labels,  # OUT (2 group, nodes of the largest example)
    int32_t[:, ::1] moved,  # workspace (2, features of the nodes of a group), or (2, 0) without shares
    bint leads,  # whether this thread makes the steps (leader), or finds labels for the leader
    double[::1] work,  # workspace
    int32_t[::1] found,  # workspace, zero before the first call
):
    """Make one step for each example; return the sums of the changes of offsets and of the slacks.

    Labels of a group that are found ahead are those at the x before the steps of the group before, so that other
    threads find them while these are made. Each step is the best one at the x of its time.
    """
    cdef:
        Examples* p = <Examples*> malloc(len(examples) * sizeof(Examples))
        Workspace workspace
        Row row
        const floating[:, ::1] part
        Py_ssize_t n = x.shape[0], n_members = members.shape[0], start, stop, place, b, k
        Py_ssize_t n_nodes = 0
        Py_ssize_t[2] n_moved
        double gained = 0.0, slack = 0.0
        bint by_shares = shares.shape[0] > 0
    if p == NULL:
        raise MemoryError
    try:
        for b in range(len(examples)):
            part = features[b]
            open_examples(examples[b], part, &p[b])
            p[b].first_node = n_nodes
            n_nodes += p[b].node_ptr[first_members[b + 1] - first_members[b]]
        partition_workspace(&p[0], found.shape[0], &work[0], &found[0], &workspace)
        n_moved[0] = n_moved[1] = 0
        with nogil:
            if not leads:
                help_with_labels(p, members, first_members, earlier, group, turns, labels, &workspace, <floating*> NULL)
            else:
                earlier[0, :] = x
                earlier[1, :] = x
                raise_counter(&turns[ALLOWED], min(group, n_members))
                for k in range((n_members + group - 1) // group):
                    start, stop = k * group, min((k + 1) * group, n_members)
                    find_labels(p, members, first_members, earlier, group, stop, turns, labels, &workspace,
                                <floating*> NULL)
                    wait_for(&turns[ENDED], stop)
                    if ahead and stop < n_members:
                        bring_up_to_date(p, x, earlier[(k + 1) % 2], moved, n_moved)
                        raise_counter(&turns[ALLOWED], min(stop + group, n_members))
                    n_moved[k % 2] = 0
                    for place in range(start, stop):
                        if place + 1 < n_members and not by_shares:
                            prefetch_row(&slopes[members[place + 1], 0], n)
                        b = batch_of(first_members, members[place])
                        workspace.found = &labels[place % (2 * group), 0]
                        if by_shares:
                            row.size = &row_sizes[members[place]]
                            row.index = &row_index[row_ptr[members[place]]]
                            row.values = &row_values[row_ptr[members[place]]]
                            step_of_shares(&p[b], members[place] - first_members[b], &workspace, &row,
                                           &combined[members[place], 0], &shares[0, 0], x, free, mean, bounded,
                                           n_steps + place + 1, &moved[k % 2, 0], &n_moved[k % 2],
                                           &gained, &slack, <floating*> NULL)
                            continue
                        step_towards(&p[b], members[place] - first_members[b], &workspace, &slopes[members[place], 0],
                                     &combined[members[place], 0], x, free, mean, bounded,
                                     2.0 / (n_steps + place + 2.0), &gained, &slack, <floating*> NULL)
                    workspace.found = &found[0]
                    if not ahead and stop < n_members:
                        bring_up_to_date(p, x, earlier[(k + 1) % 2], moved, n_moved)
                        raise_counter(&turns[ALLOWED], min(stop + group, n_members))
    finally:
        free_memory(p)
    return gained, slack


cdef inline void bring_up_to_date(const Examples* p, double[::1] x, double[::1] earlier, int32_t[:, ::1] moved,
                                  const Py_ssize_t* n_moved) noexcept nogil:
    """Copy x, or only the rows of weights that the last two groups of steps changed."""
    cdef Py_ssize_t C = p.n_columns, parity, k, a
    if moved.shape[1] == 0:
        earlier[:] = x
        return
    for parity in range(2):
        for k in range(n_moved[parity]):
            for a in range(moved[parity, k] * C, (moved[parity, k] + 1) * C):
                earlier[a] = x[a]
    for a in range(p.intercept_at, p.n_weights):
        earlier[a] = x[a]


# Counters of examples: taken by a thread, allowed to start, and finished.
cdef enum:
    TAKEN = 0
    ALLOWED = 8
    ENDED = 16

# Number of polls for which a helper waits for the leader to start.
cdef enum:
    PATIENCE = 20000


cdef inline Py_ssize_t batch_of(const int64_t[::1] first_members, Py_ssize_t member) noexcept nogil:
    cdef Py_ssize_t low = 0, high = first_members.shape[0] - 1, middle
    while high - low > 1:
        middle = (low + high) // 2
        if first_members[middle] <= member:
            low = middle
        else:
            high = middle
    return low


cdef inline void prefetch_row(const double* row, Py_ssize_t n) noexcept nogil:
    """Prefetch a slope during another step, since all slopes together exceed the caches."""
    cdef Py_ssize_t k
    for k in range(0, n, 8):
        prefetch(row + k)


cdef inline void wait_for(int64_t* counter, int64_t value) noexcept nogil:
    cdef int64_t moments = 0
    while counter_value(counter) < value:
        wait_a_moment(moments)
        moments += 1


cdef void find_labels(const Examples* p, const int32_t[::1] members, const int64_t[::1] first_members,
                      double[:, ::1] earlier, Py_ssize_t group, int64_t limit, int64_t[::1] turns,
                      int32_t[:, ::1] labels, Workspace* workspace, floating* precision) noexcept nogil:
    """Find labels of the examples of one group, up to a limit, until no example is left."""
    cdef:
        int64_t place = take_number(&turns[TAKEN], limit)
        Py_ssize_t b, i, k
        const double* x
    if place < 0:
        return
    x = &earlier[(place // group) % 2, 0]
    expand_tables(p, x, workspace)
    while place >= 0:
        b = batch_of(first_members, members[place])
        i = members[place] - first_members[b]
        most_violated(&p[b], i, x, workspace, precision)
        for k in range(p[b].node_ptr[i + 1] - p[b].node_ptr[i]):
            labels[place % (2 * group), k] = workspace.found[k]
        count_one(&turns[ENDED])
        place = take_number(&turns[TAKEN], limit)


cdef void help_with_labels(const Examples* p, const int32_t[::1] members, const int64_t[::1] first_members,
                           double[:, ::1] earlier, Py_ssize_t group, int64_t[::1] turns, int32_t[:, ::1] labels,
                           Workspace* workspace, floating* precision) noexcept nogil:
    """Find labels of all allowed examples, until every example is done."""
    cdef int64_t moments = 0, allowed
    while counter_value(&turns[TAKEN]) < members.shape[0]:
        allowed = counter_value(&turns[ALLOWED])
        if allowed > counter_value(&turns[TAKEN]):
            find_labels(p, members, first_members, earlier, group, allowed, turns, labels, workspace, precision)
            moments = 0
        elif allowed == 0 and moments > PATIENCE:
            # The leader may have been interrupted before it started.
            return
        wait_a_moment(moments)
        moments += 1


# Numbers of a combined plane: offset, factor (slope = factor * row of slopes), and squared norm of the slope.
cdef enum:
    OFFSET = 0
    FACTOR = 1
    SQUARE = 2

# Smallest factor of a row of slopes.
cdef double LEAST = 1e-50


cdef inline void step_towards(const Examples* p, Py_ssize_t i, Workspace* workspace, double* row, double* combined,
                              double[::1] x, double[::1] free, double[::1] mean, const int32_t[::1] bounded,
                              double recent, double* gained, double* slacks, floating* precision) noexcept nogil:
    """Make the optimal step of the combined plane of an example towards the plane of the found labels.

    Most entries of the latter are zero: only one row, x and its mean are read and written whole, and the row is shrunk
    by its factor.
    """
    cdef:
        Py_ssize_t n = x.shape[0], k, at
        double share = find_plane(p, i, workspace, precision) - combined[OFFSET], factor = combined[FACTOR]
        double size, slack, at_x = -factor * product(row, &x[0], n), along = 0.0, square = 0.0
        const Slope* slope = &workspace.slope
    for k in range(slope.n_entries):
        at_x += slope.values[k] * x[slope.entries[k]]
        along += slope.values[k] * row[slope.entries[k]]
        square += slope.values[k] * slope.values[k]
    along *= factor
    slack = share + at_x
    size = 0.0
    if slack > 0:
        slacks[0] += slack
        size = min(slack / max(square - 2 * along + combined[SQUARE], DBL_MIN), 1.0)
        combined[OFFSET] += size * share
        gained[0] += size * share
    for k in range(bounded.shape[0]):
        free[k] -= x[bounded[k]]
    for k in range(slope.n_entries):
        x[slope.entries[k]] -= size * slope.values[k]
    move(size * factor, row, recent, &x[0], &mean[0], n)
    for k in range(bounded.shape[0]):
        at = bounded[k]
        free[k] += x[at]
        mean[at] += recent * (max(free[k], 0.0) - x[at])
        x[at] = max(free[k], 0.0)
    combined[SQUARE] = (1 - size) ** 2 * combined[SQUARE] + size * (2 * (1 - size) * along + size * square)
    factor *= 1 - size
    if factor < LEAST:
        for k in range(n):
            row[k] *= factor
        factor = 1.0
    for k in range(slope.n_entries):
        row[slope.entries[k]] += size / factor * slope.values[k]
    combined[FACTOR] = factor


# SHARES: for very sparse features, a combined plane is stored as the share of each state at each node. Its slope is
# stored for table weights only, by the entries that found labels have used so far. The mean of x over the steps is x
# minus a lag: 2 / (k (k + 1)) times the sum of all moves, where the move of step j has weight j (j - 1) / 2.


cdef struct Row:
    int64_t* size
    int32_t* index
    double* values


cdef inline bint find_difference(const Examples* p, Py_ssize_t i, Workspace* workspace, const Row* row,
                                 const double* shares, Py_ssize_t* n_rows, floating* precision) noexcept nogil:
    """Compute the slope of the plane of the found labels minus the combined slope; return whether they differ.

    Some rows of features come first, those that ``workspace.slope.entries`` names; other weights are in their places.
    """
    cdef:
        Py_ssize_t K = p.n_states, C = p.n_columns, first = p.node_ptr[i], n_slots = 0, s, a, q, kind, n_nonzero
        Slope* slope = &workspace.slope
        Slope tables
        const double* share
        double* difference = workspace.best
        int32_t r
        bint differs, any_differs = False
    for a in range(p.intercept_at, p.n_weights):
        slope.values[a] = 0.0
    for a in range(row.size[0]):
        slope.values[p.tables_at + row.index[a]] = -row.values[a]
    tables = slope[0]
    tables.total = slope.values
    add_tables(p, i, workspace, &tables, <floating*> NULL)
    for a in range(p.tables_at, p.n_weights):
        any_differs |= slope.values[a] != 0
    for s in range(first, p.node_ptr[i + 1]):
        share = shares + s * K + K - C  # for two states, the shares of the second state, whose score has weights
        differs = False
        for a in range(C):
            difference[a] = p.weight[i] * ((workspace.found[s - first] == a + K - C) - share[a])
            differs |= difference[a] != 0
        if not differs:
            continue
        any_differs = True
        n_nonzero = find_nonzero(p, s, workspace, <floating*> NULL)
        for q in range(n_nonzero):
            r = workspace.nonzero[q]
            workspace.nonzero[q] = slope.place[r]
            # `place` may hold stale values of earlier slopes.
            if slope.place[r] >= n_slots or slope.entries[slope.place[r]] != r:
                workspace.nonzero[q] = slope.place[r] = <int32_t> n_slots
                slope.entries[n_slots] = r
                for a in range(C):
                    slope.values[n_slots * C + a] = 0.0
                n_slots += 1
        add_to_slots(slope.values, workspace.nonzero, workspace.factors, n_nonzero, difference, C)
        if p.constant != 0:
            kind = 0 if p.node_type == NULL else p.node_type[s]
            for a in range(C):
                slope.values[p.intercept_at + kind * C + a] += p.constant * difference[a]
    n_rows[0] = n_slots
    return any_differs


cdef inline void add_to_row(Row* row, double size, double* values, Py_ssize_t n) noexcept nogil:
    """Add values to a row and reset them to zero; the row has space for all nonzero values."""
    cdef Py_ssize_t a, n_entries = row.size[0]
    for a in range(n_entries):
        row.values[a] += size * values[row.index[a]]
        values[row.index[a]] = 0.0
    for a in range(n):
        if values[a] != 0:
            row.index[n_entries] = <int32_t> a
            row.values[n_entries] = size * values[a]
            n_entries += 1
    row.size[0] = n_entries


cdef inline void step_of_shares(const Examples* p, Py_ssize_t i, Workspace* workspace, Row* row, double* combined,
                                double* all_shares, double[::1] x, double[::1] free, double[::1] lag,
                                const int32_t[::1] bounded, Py_ssize_t number, int32_t* moved, Py_ssize_t* n_moved,
                                double* gained, double* slacks, floating* precision) noexcept nogil:
    """Make the optimal step of the combined labels of an example towards the found labels."""
    cdef:
        Py_ssize_t K = p.n_states, C = p.n_columns, first = p.node_ptr[i], n_rows = 0, s, a, at
        double lift = cost_of_labels(p, i, workspace, <floating*> NULL) - combined[OFFSET]
        double slack = lift, square = 0.0, size, after, late = 0.5 * number * (number - 1.0)
        double* shares = all_shares + p.first_node * K
        double* values = workspace.slope.values
        double* by_column = workspace.mixed
        double* squares = workspace.mixed + C
        double* own
    if not find_difference(p, i, workspace, row, shares, &n_rows, <floating*> NULL):
        return
    weigh_rows(&x[0], workspace.slope.entries, values, n_rows, C, by_column, squares)
    for a in range(C):
        slack += by_column[a]
        square += squares[a]
    for a in range(p.intercept_at, p.n_weights):
        slack += values[a] * x[a]
        square += values[a] * values[a]
    if slack <= 0:
        return
    slacks[0] += slack
    size = min(slack / max(square, DBL_MIN), 1.0)
    combined[OFFSET] += size * lift
    gained[0] += size * lift
    move_rows(&x[0], &lag[0], workspace.slope.entries, values, n_rows, C, size, late)
    for a in range(n_rows):
        moved[n_moved[0] + a] = workspace.slope.entries[a]
    n_moved[0] += n_rows
    for a in range(p.intercept_at, p.n_weights):
        x[a] -= size * values[a]
        lag[a] -= late * size * values[a]
    for a in range(bounded.shape[0]):
        at = bounded[a]
        free[a] -= size * values[at]
        after = max(free[a], 0.0)
        lag[at] += late * (after - x[at])
        x[at] = after
    add_to_row(row, size, values + p.tables_at, p.n_weights - p.tables_at)
    for s in range(first, p.node_ptr[i + 1]):
        own = shares + s * K
        for a in range(K):
            own[a] -= size * own[a]
        own[workspace.found[s - first]] += size
