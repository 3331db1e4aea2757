"""Structured hinges of forests and small graphs with linear scores: values, planes, and passes of Frank-Wolfe steps."""

from cython cimport floating
from libc.float cimport DBL_MIN
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free as free_memory
from libc.stdlib cimport malloc

from sklearn_crf.kernels.learning.forest_hinge cimport (
    Examples,
    Workspace,
    expand_tables,
    find_plane,
    most_violated,
    open_examples,
    partition_workspace,
)
from sklearn_crf.kernels.rows cimport prefetch


cdef extern from "hinge_rows.h" nogil:
    double product(const double*, const double*, Py_ssize_t)
    void move(double, const double*, double, double*, double*, Py_ssize_t)

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
    double[:, ::1] slopes,  # IN OUT (stop - start, n), zero before
    double[::1] offsets,  # OUT (stop - start,)
    Py_ssize_t start,
    Py_ssize_t stop,
    double[::1] work,  # workspace
    int32_t[::1] found,  # workspace, zero before
):
    """Plane of each example's hinge that touches it at x."""
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
    double[::1] slope,  # IN OUT (n,) zero before
    Py_ssize_t start,
    Py_ssize_t stop,
    double[::1] work,  # workspace
    int32_t[::1] found,  # workspace, zero before
):
    """Sum of the planes that touch the hinges of the examples start to stop at x: its slope and value there."""
    cdef:
        Examples p
        Workspace workspace
        Py_ssize_t i
        double value = 0.0
    open_examples(examples, features, &p)
    partition_workspace(&p, found.shape[0], &work[0], &found[0], &workspace)
    workspace.slope.total = &slope[0]
    with nogil:
        expand_tables(&p, &x[0], &workspace)
        for i in range(start, stop):
            value += p.weight[i] * most_violated(&p, i, &x[0], &workspace, <floating*> NULL)
            find_plane(&p, i, &workspace, <floating*> NULL)
    return value


def frank_wolfe_steps(
    list examples,  # IN arrays of each batch
    list features,  # IN (N, F) of the nodes of each
    const floating[:, ::1] first_features,  # IN the first of these
    const int32_t[::1] members,  # IN examples in the order of their steps, numbered through all batches
    const int64_t[::1] first_members,  # IN (n_batches + 1,) first example of each batch
    double[:, ::1] slopes,  # IN OUT (m, n) slope of the combined plane of each example, but for its factor
    double[:, ::1] combined,  # IN OUT (m, 3) of these planes: see OFFSET, FACTOR, and SQUARE
    double[::1] x,  # IN OUT (n,) minus the sum of all slopes, projected
    double[:, ::1] earlier,  # IN OUT (2, n) x at which labels are found, that of even and of odd groups
    double[::1] free,  # IN OUT (m,) bounded entries of x before they are projected
    double[::1] mean,  # IN OUT (n,) of the x after each step, step k with weight k
    const int32_t[::1] bounded,  # IN (m,) entries of x that must not be negative
    Py_ssize_t n_steps,  # made before
    Py_ssize_t group,  # examples whose labels are found at one x
    bint ahead,  # whether these are found before the steps of the group before are made
    int64_t[::1] turns,  # IN OUT counters that threads share, see TAKEN and below; zero before
    int32_t[:, ::1] labels,  # OUT (2 group, nodes of the largest example)
    bint leads,  # whether this thread makes the steps, or finds labels for the one that does
    double[::1] work,  # workspace
    int32_t[::1] found,  # workspace, zero before the first call
):
    """One step for each example; what was added to the offsets, and the slacks met, summed.

    Labels of a group that are found ahead are those at the x before the steps of the group before, so that other
    threads find them while these are made. Each step is the best one at the x of its time.
    """
    cdef:
        Examples* p = <Examples*> malloc(len(examples) * sizeof(Examples))
        Workspace workspace
        const floating[:, ::1] part
        Py_ssize_t n = x.shape[0], n_members = members.shape[0], start, stop, place, b, k
        double gained = 0.0, slack = 0.0
    if p == NULL:
        raise MemoryError
    try:
        for b in range(len(examples)):
            part = features[b]
            open_examples(examples[b], part, &p[b])
        partition_workspace(&p[0], found.shape[0], &work[0], &found[0], &workspace)
        with nogil:
            if not leads:
                help_with_labels(p, members, first_members, earlier, group, turns, labels, &workspace, <floating*> NULL)
            else:
                earlier[0, :] = x
                raise_counter(&turns[ALLOWED], min(group, n_members))
                for k in range((n_members + group - 1) // group):
                    start, stop = k * group, min((k + 1) * group, n_members)
                    find_labels(p, members, first_members, earlier, group, stop, turns, labels, &workspace,
                                <floating*> NULL)
                    wait_for(&turns[ENDED], stop)
                    if ahead and stop < n_members:
                        earlier[(k + 1) % 2, :] = x
                        raise_counter(&turns[ALLOWED], min(stop + group, n_members))
                    for place in range(start, stop):
                        if place + 1 < n_members:
                            prefetch_row(&slopes[members[place + 1], 0], n)
                        b = batch_of(first_members, members[place])
                        workspace.found = &labels[place % (2 * group), 0]
                        step_towards(&p[b], members[place] - first_members[b], &workspace, &slopes[members[place], 0],
                                     &combined[members[place], 0], x, free, mean, bounded,
                                     2.0 / (n_steps + place + 2.0), &gained, &slack, <floating*> NULL)
                    workspace.found = &found[0]
                    if not ahead and stop < n_members:
                        earlier[(k + 1) % 2, :] = x
                        raise_counter(&turns[ALLOWED], min(stop + group, n_members))
    finally:
        free_memory(p)
    return gained, slack


# Places of the counters: examples whose labels some thread finds, those that may be begun, those that are ended.
cdef enum:
    TAKEN = 0
    ALLOWED = 8
    ENDED = 16

# Moments that a helping thread waits for one that leads to begin.
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
    """All slopes together are in no near cache; this one comes while another step is made."""
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
    """Find labels of examples up to a limit, all of one group, until none is left."""
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
    """Find labels of whatever may be begun, until all examples have theirs."""
    cdef int64_t moments = 0, allowed
    while counter_value(&turns[TAKEN]) < members.shape[0]:
        allowed = counter_value(&turns[ALLOWED])
        if allowed > counter_value(&turns[TAKEN]):
            find_labels(p, members, first_members, earlier, group, allowed, turns, labels, workspace, precision)
            moments = 0
        elif allowed == 0 and moments > PATIENCE:
            # An interruption may have come before the one that leads.
            return
        wait_a_moment(moments)
        moments += 1


# Numbers of a combined plane: its offset, what its slope is times the row of slopes, and the square of its slope.
cdef enum:
    OFFSET = 0
    FACTOR = 1
    SQUARE = 2

# The least factor of a row of slopes.
cdef double LEAST = 1e-50


cdef inline void step_towards(const Examples* p, Py_ssize_t i, Workspace* workspace, double* row, double* combined,
                              double[::1] x, double[::1] free, double[::1] mean, const int32_t[::1] bounded,
                              double recent, double* gained, double* slacks, floating* precision) noexcept nogil:
    """The best step of the combined plane of an example towards the plane of the labels found.

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
