"""One sweep of Gaussian belief propagation: the messages that some nodes send, from those of the last sweep."""

from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t


cdef bint factorise(double* matrix, Py_ssize_t D) noexcept nogil:
    """Lower Cholesky factor in place; False if the matrix is not positive definite."""
    cdef Py_ssize_t a, b, c
    for a in range(D):
        for b in range(a + 1):
            for c in range(b):
                matrix[a * D + b] -= matrix[a * D + c] * matrix[b * D + c]
            if a > b:
                matrix[a * D + b] /= matrix[b * D + b]
            elif matrix[a * D + a] > 0.0:
                matrix[a * D + a] = sqrt(matrix[a * D + a])
            else:
                return False
    return True


cdef void solve_lower(const double* factor, double* vector, Py_ssize_t D) noexcept nogil:
    cdef Py_ssize_t a, b
    for a in range(D):
        for b in range(a):
            vector[a] -= factor[a * D + b] * vector[b]
        vector[a] /= factor[a * D + a]


def send_gaussians(
    const double[:, ::1] h,  # IN (N, D)
    const double[:, :, ::1] diagonal,  # IN (N, D, D)
    const int32_t[::1] edge_type,  # IN (E,)
    const double[:, :, ::1] blocks,  # IN (T, D, D)
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const int32_t[::1] reverse,  # IN (2E,)
    const double[:, ::1] shift,  # IN (2E, D) linear part of the message received at a slot
    const double[:, :, ::1] precision,  # IN (2E, D, D) its quadratic part
    double damping,  # share of the old message that is kept
    Py_ssize_t start,
    Py_ssize_t stop,  # nodes start to stop send
    double[:, ::1] new_shift,  # OUT (2E, D)
    double[:, :, ::1] new_precision,  # OUT (2E, D, D)
    double[::1] work,  # workspace (D + 1 + 2 D D,)
):
    """Largest change of a message, or -1 - s if node s without one of its messages has no precision left."""
    cdef:
        Py_ssize_t D = h.shape[1], s, slot, other, target, a, b, c, kind
        double* vector = &work[0]
        double* cavity = &work[D]
        double* across = &work[D + D * D]  # row a: the block's column a, solved
        double value, worst = 0.0
    with nogil:
        for s in range(start, stop):
            for slot in range(ptr[s], ptr[s + 1]):
                for a in range(D):
                    vector[a] = h[s, a]
                    for b in range(D):
                        cavity[a * D + b] = diagonal[s, a, b]
                for other in range(ptr[s], ptr[s + 1]):
                    if other == slot:
                        continue
                    for a in range(D):
                        vector[a] += shift[other, a]
                        for b in range(D):
                            cavity[a * D + b] += precision[other, a, b]
                if not factorise(cavity, D):
                    worst = -1.0 - s
                    break
                solve_lower(cavity, vector, D)
                kind = edge_type[half_edge[slot] >> 1]
                for a in range(D):
                    for b in range(D):
                        # J_st[b, a]: a counts the entries of the receiver
                        across[a * D + b] = blocks[kind, a, b] if half_edge[slot] & 1 else blocks[kind, b, a]
                    solve_lower(cavity, across + a * D, D)
                target = reverse[slot]
                for a in range(D):
                    value = 0.0
                    for c in range(D):
                        value -= across[a * D + c] * vector[c]
                    value += damping * (shift[target, a] - value)
                    worst = max(worst, fabs(value - shift[target, a]))
                    new_shift[target, a] = value
                    for b in range(D):
                        value = 0.0
                        for c in range(D):
                            value -= across[a * D + c] * across[b * D + c]
                        value += damping * (precision[target, a, b] - value)
                        worst = max(worst, fabs(value - precision[target, a, b]))
                        new_precision[target, a, b] = value
            if worst < 0.0:
                break
    return worst
