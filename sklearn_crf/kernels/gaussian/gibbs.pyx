"""One sweep of Gibbs sampling in a Gaussian field over some nodes."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from sklearn_crf.kernels.random_streams cimport normal


def gaussian_gibbs_update(
    const int32_t[::1] nodes,  # IN no two of them joined
    Py_ssize_t start,
    Py_ssize_t stop,
    const double[:, ::1] h,  # IN (N, D)
    const double[:, :, ::1] covariance,  # IN (N, D, D) of a node given its neighbours
    const double[:, :, ::1] root,  # IN (N, D, D) its lower Cholesky factor
    const int32_t[::1] edge_type,  # IN (E,)
    const double[:, :, ::1] blocks,  # IN (T, D, D)
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] half_edge,  # IN (2E,)
    uint64_t key,
    double[:, ::1] values,  # IN OUT (N, D)
    double[:, ::1] total,  # IN OUT (N, D) sums of conditional means, or empty
    double[:, :, ::1] total_square,  # IN OUT (N, D, D) sums of their outer products, or empty
    double[::1] work,  # workspace (2 D,)
):
    """Draw nodes[start:stop] from their conditionals given their neighbours."""
    cdef:
        Py_ssize_t position, slot, a, b, D = h.shape[1], kind
        int32_t s, t
        double* field = &work[0]
        double* mean = &work[D]
    with nogil:
        for position in range(start, stop):
            s = nodes[position]
            for a in range(D):
                field[a] = h[s, a]
            for slot in range(ptr[s], ptr[s + 1]):
                t = neighbor[slot]
                kind = edge_type[half_edge[slot] >> 1]
                for a in range(D):
                    for b in range(D):
                        field[a] -= (blocks[kind, b, a] if half_edge[slot] & 1 else blocks[kind, a, b]) * values[t, b]
            for a in range(D):
                mean[a] = 0.0
                for b in range(D):
                    mean[a] += covariance[s, a, b] * field[b]
            for a in range(D):
                values[s, a] = mean[a]
                for b in range(a + 1):
                    values[s, a] += root[s, a, b] * normal(key, s * D + b)
            if total.shape[0]:
                for a in range(D):
                    total[s, a] += mean[a]
                    for b in range(D):
                        total_square[s, a, b] += mean[a] * mean[b]
