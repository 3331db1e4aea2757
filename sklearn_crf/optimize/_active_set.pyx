"""Maximise a concave quadratic function over a simplex and half-lines with an active-set method."""

from libc.math cimport fabs, hypot, sqrt
from libc.string cimport memmove

import numpy as np


cdef struct Problem:
    Py_ssize_t n
    Py_ssize_t n_simplex  # the first variables, which sum to one
    Py_ssize_t stride  # of the rows of the Gram matrix
    const double* gram  # (n, n)
    const double* offset  # (n,)
    double ridge
    double least_ridge


cdef struct Factor:
    # One free variable of the simplex is the base, which is chosen so that the sum is one. R is upper triangular, and
    # R' R is the Gram matrix plus the ridge, expressed in the other free variables in the order of members.
    Py_ssize_t base
    Py_ssize_t n_members
    double* rows  # (n, n)
    Py_ssize_t* members  # (n,)
    double* solved  # (n,) solution u of R' u = g, with the gradient g at the point where only the base is non-zero
    unsigned char* is_free  # (n,) also set for the base


def climb_active_set(
    const double[:, :] gram,  # IN (n, n) each row contiguous
    const double[::1] offset,  # IN (n,)
    double[::1] weight,  # IN OUT (n,) a feasible point, then the maximiser
    Py_ssize_t n_simplex,  # the first variables, which sum to one
    double ridge,  # on the diagonal, relative to each entry
    double least_ridge,  # smallest ridge, for zero entries
    double precision,  # tolerated violation, relative to the largest gradient and its largest term
):
    """Move to the maximiser in feasible steps that each free or fix one variable."""
    cdef:
        Py_ssize_t n = offset.shape[0], _step, best
        double[:, ::1] rows = np.empty((n, n))
        double[:, ::1] vectors = np.empty((3, n))
        Py_ssize_t[::1] members = np.empty(n, dtype=np.intp)
        unsigned char[::1] free = np.asarray(weight).astype(bool).view(np.uint8)
        double* found = &vectors[0, 0]
        Problem p
        Factor factor
    if gram.strides[1] != sizeof(double):
        raise ValueError("rows of gram must be contiguous.")
    p.n, p.n_simplex, p.stride = n, n_simplex, gram.strides[0] // <Py_ssize_t> sizeof(double)
    p.ridge, p.least_ridge = ridge, least_ridge
    p.gram, p.offset = &gram[0, 0], &offset[0]
    factor.rows, factor.members, factor.solved, factor.is_free = &rows[0, 0], &members[0], &vectors[1, 0], &free[0]
    with nogil:
        choose_base(&p, &factor, &weight[0])
        for _step in range(20 * n + 100):
            solve(&p, &factor, found)
            if move_to_boundary(&p, &factor, &weight[0], found):
                continue
            best = most_violated(&p, &factor, &weight[0], &vectors[2, 0], precision)
            if best < 0:
                break
            free_variable(&p, &factor, best)


cdef void choose_base(const Problem* p, Factor* factor, const double* weight) noexcept nogil:
    """Choose the largest variable of the simplex as base: it will be the last to become zero."""
    cdef Py_ssize_t i
    factor.base = 0
    for i in range(p.n_simplex):
        if weight[i] > weight[factor.base]:
            factor.base = i
    factor.n_members = 0
    for i in range(p.n):
        if factor.is_free[i] and i != factor.base:
            free_variable(p, factor, i)


cdef inline double ridge_of(const Problem* p, Py_ssize_t variable) noexcept nogil:
    # Planes far from the optimum have slopes that are larger by orders of magnitude than slopes near it. Hence each
    # plane has its own ridge.
    return max(p.ridge * p.gram[variable * p.stride + variable], p.least_ridge)


cdef void free_variable(const Problem* p, Factor* factor, Py_ssize_t variable) noexcept nogil:
    """Free one more variable and append its column to the factor."""
    cdef:
        Py_ssize_t m = factor.n_members, k, i
        const double* own = p.gram + variable * p.stride
        const double* base = p.gram + factor.base * p.stride
        double in_simplex = 1.0 if variable < p.n_simplex else 0.0, value
        double from_base = own[factor.base] - in_simplex * base[factor.base]
        double ridge = ridge_of(p, variable)
        double square = own[variable] - in_simplex * base[variable] - in_simplex * from_base + ridge
        double u = p.offset[variable] - in_simplex * p.offset[factor.base] - from_base
        double* column = factor.rows + m * p.n  # stored where the next row will go
        const double* row
    for k in range(m):
        i = factor.members[k]
        column[k] = own[i] - in_simplex * base[i] - (from_base if i < p.n_simplex else 0.0)
    for k in range(m):
        row = factor.rows + k * p.n
        value = column[k] / row[k]
        column[k] = value
        for i in range(k + 1, m):
            column[i] -= value * row[i]
    for k in range(m):
        value = column[k]
        factor.rows[k * p.n + m] = value
        square -= value * value
        u -= value * factor.solved[k]
    column[m] = sqrt(max(square, ridge))
    factor.solved[m] = u / column[m]
    factor.members[m] = variable
    factor.n_members = m + 1
    factor.is_free[variable] = True


cdef void fix_member(const Problem* p, Factor* factor, Py_ssize_t place) noexcept nogil:
    """Fix a free variable at zero: delete its column and restore the triangular form with rotations."""
    cdef:
        Py_ssize_t m = factor.n_members, k, i
        double size, c, s, a, b
        double* upper
        double* lower
    factor.is_free[factor.members[place]] = False
    for k in range(m):
        i = max(k, place + 1)
        upper = factor.rows + k * p.n + i
        memmove(upper - 1, upper, (m - i) * sizeof(double))
    for k in range(place, m - 1):
        upper, lower = factor.rows + k * p.n, factor.rows + (k + 1) * p.n
        size = hypot(upper[k], lower[k])
        c, s = upper[k] / size, lower[k] / size
        for i in range(k, m - 1):
            a, b = upper[i], lower[i]
            upper[i], lower[i] = c * a + s * b, c * b - s * a
        a, b = factor.solved[k], factor.solved[k + 1]
        factor.solved[k], factor.solved[k + 1] = c * a + s * b, c * b - s * a
        factor.members[k] = factor.members[k + 1]
    factor.n_members = m - 1


cdef void solve(const Problem* p, const Factor* factor, double* found) noexcept nogil:
    """Compute the maximiser over the free variables without sign constraints: the members, then the base."""
    cdef:
        Py_ssize_t m = factor.n_members, k, i
        double total, rest = 1.0
        const double* row
    for k in range(m - 1, -1, -1):
        row = factor.rows + k * p.n
        total = factor.solved[k]
        for i in range(k + 1, m):
            total -= row[i] * found[i]
        found[k] = total / row[k]
        if factor.members[k] < p.n_simplex:
            rest -= found[k]
    found[m] = rest


cdef bint move_to_boundary(const Problem* p, Factor* factor, double* weight, const double* found) noexcept nogil:
    """Move towards ``found`` as far as feasible, and return whether that fixed a variable."""
    cdef:
        Py_ssize_t m = factor.n_members, k, i, first = -1
        double share = 1.0, now
    for k in range(m + 1):
        i = factor.base if k == m else factor.members[k]
        if found[k] < 0 and (first < 0 or weight[i] < share * (weight[i] - found[k])):
            share, first = weight[i] / (weight[i] - found[k]), k
    for k in range(m + 1):
        i = factor.base if k == m else factor.members[k]
        now = weight[i]
        weight[i] = found[k] if first < 0 else max(now + share * (found[k] - now), 0.0)
    if first < 0:
        return False
    if first == m:
        weight[factor.base], factor.is_free[factor.base] = 0.0, False
        choose_base(p, factor, weight)
    else:
        weight[factor.members[first]] = 0.0
        fix_member(p, factor, first)
    return True


cdef Py_ssize_t most_violated(const Problem* p, const Factor* factor, const double* weight, double* gradient,
                              double precision) noexcept nogil:
    """Return the fixed variable whose increase raises the function most, or -1."""
    cdef:
        Py_ssize_t i, k, best = -1
        double largest = 0.0, steepest = 0.0, most = 0.0, rise
        const double* row
    for i in range(p.n):
        gradient[i] = p.offset[i]
        largest = max(largest, fabs(p.offset[i]))
    for k in range(p.n):
        row = p.gram + k * p.stride
        if weight[k] != 0:
            for i in range(p.n):
                gradient[i] -= weight[k] * row[i]
                largest = max(largest, fabs(weight[k] * row[i]))
    for i in range(p.n):
        steepest = max(steepest, fabs(gradient[i]))
        rise = gradient[i] - (gradient[factor.base] if i < p.n_simplex else 0.0)
        if not factor.is_free[i] and rise > most:
            most, best = rise, i
    # The ridge itself causes a violation of its size, which is tolerated even if all gradients are zero.
    return best if most > precision * (steepest + largest) + p.least_ridge else -1
