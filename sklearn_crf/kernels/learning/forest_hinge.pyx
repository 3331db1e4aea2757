"""Structured hinges of forests and small graphs with linear scores: values, planes, and passes of Frank-Wolfe steps."""

from cython cimport floating
from libc.float cimport DBL_MIN
from libc.stdint cimport int32_t

from sklearn_crf.kernels.learning.forest_hinge cimport (
    Examples,
    Workspace,
    add_plane,
    expand_tables,
    most_violated,
    open_examples,
    partition_workspace,
)
from sklearn_crf.kernels.rows cimport prefetch


def highest_planes(
    object examples,  # IN arrays of the examples
    const floating[:, ::1] features,  # IN (N, F) of their nodes
    const double[::1] x,  # IN (n,) weights
    double[:, ::1] slopes,  # IN OUT (stop - start, n), zero before
    double[::1] offsets,  # OUT (stop - start,)
    Py_ssize_t start,
    Py_ssize_t stop,
    double[::1] work,  # workspace
    int32_t[::1] found,  # workspace
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
            offsets[i - start] = add_plane(&p, i, &workspace, &slopes[i - start, 0], <floating*> NULL)


def sum_of_planes(
    object examples,  # IN arrays of the examples
    const floating[:, ::1] features,  # IN (N, F) of their nodes
    const double[::1] x,  # IN (n,) weights
    double[::1] slope,  # IN OUT (n,) zero before
    Py_ssize_t start,
    Py_ssize_t stop,
    double[::1] work,  # workspace
    int32_t[::1] found,  # workspace
):
    """Sum of the planes that touch the hinges of the examples start to stop at x: its slope and value there."""
    cdef:
        Examples p
        Workspace workspace
        Py_ssize_t i
        double value = 0.0
    open_examples(examples, features, &p)
    partition_workspace(&p, found.shape[0], &work[0], &found[0], &workspace)
    with nogil:
        expand_tables(&p, &x[0], &workspace)
        for i in range(start, stop):
            value += p.weight[i] * most_violated(&p, i, &x[0], &workspace, <floating*> NULL)
            add_plane(&p, i, &workspace, &slope[0], <floating*> NULL)
    return value


def frank_wolfe_steps(
    object examples,  # IN arrays of the examples
    const floating[:, ::1] features,  # IN (N, F) of their nodes
    const int32_t[::1] members,  # IN examples in the order of their steps
    double[:, ::1] slopes,  # IN OUT (m, n) combined plane of each
    double[::1] offsets,  # IN OUT (m,)
    double[::1] x,  # IN OUT (n,) minus the sum of all slopes, projected
    double[::1] free,  # IN OUT (m,) bounded entries of x before they are projected
    double[::1] mean,  # IN OUT (n,) of the x after each step, step k with weight k
    const int32_t[::1] bounded,  # IN (m,) entries of x that must not be negative
    Py_ssize_t n_steps,  # made before
    double[::1] work,  # workspace
    int32_t[::1] found,  # workspace
):
    """One step for each example; what was added to the offsets, and the slacks met, summed."""
    cdef:
        Examples p
        Workspace workspace
        Py_ssize_t place, i, k, at, n = x.shape[0]
        double total = 0.0, total_slack = 0.0, slack, share, size
        double* row
        double* slope
    open_examples(examples, features, &p)
    partition_workspace(&p, found.shape[0], &work[n], &found[0], &workspace)
    row = &work[0]
    with nogil:
        for place in range(members.shape[0]):
            i = members[place]
            slope = &slopes[i, 0]
            for k in range(0, n, 8):
                # All slopes together are in no near cache; this one comes while labels are found.
                prefetch(slope + k)
            expand_tables(&p, &x[0], &workspace)
            slack = p.weight[i] * most_violated(&p, i, &x[0], &workspace, <floating*> NULL)
            slack -= offsets[i] + negate_and_multiply(slope, &x[0], row, n)
            share = add_plane(&p, i, &workspace, row, <floating*> NULL) - offsets[i]
            size = 0.0
            if slack > 0:
                total_slack += slack
                size = min(slack / max(squared_length(row, n), DBL_MIN), 1.0)
                offsets[i] += size * share
                total += size * share
            move(size, row, slope, &x[0], 2.0 / (n_steps + place + 2.0), &mean[0], n)
            for k in range(bounded.shape[0]):
                at = bounded[k]
                free[k] -= size * row[at]
                mean[at] += 2.0 / (n_steps + place + 2.0) * (max(free[k], 0.0) - x[at])
                x[at] = max(free[k], 0.0)
    return total, total_slack


cdef inline double negate_and_multiply(const double* slope, const double* x, double* row, Py_ssize_t n) noexcept nogil:
    """Minus a slope in ``row``; its product with x."""
    cdef:
        Py_ssize_t k, a
        double sums[4]
    sums[0] = sums[1] = sums[2] = sums[3] = 0.0
    for k in range(n // 4):
        for a in range(4):
            sums[a] += slope[4 * k + a] * x[4 * k + a]
            row[4 * k + a] = -slope[4 * k + a]
    for k in range(n - n % 4, n):
        sums[0] += slope[k] * x[k]
        row[k] = -slope[k]
    return (sums[0] + sums[1]) + (sums[2] + sums[3])


cdef inline double squared_length(const double* row, Py_ssize_t n) noexcept nogil:
    cdef:
        Py_ssize_t k, a
        double sums[4]
    sums[0] = sums[1] = sums[2] = sums[3] = 0.0
    for k in range(n // 4):
        for a in range(4):
            sums[a] += row[4 * k + a] * row[4 * k + a]
    for k in range(n - n % 4, n):
        sums[0] += row[k] * row[k]
    return (sums[0] + sums[1]) + (sums[2] + sums[3])


cdef inline void move(double size, const double* row, double* slope, double* x, double recent, double* mean,
                      Py_ssize_t n) noexcept nogil:
    """A step along a row, and the mean of the x after each, in one go: together they are in no near cache."""
    cdef:
        Py_ssize_t k
        double step
    for k in range(n):
        step = size * row[k]
        slope[k] += step
        x[k] -= step
        mean[k] += recent * (x[k] - mean[k])
