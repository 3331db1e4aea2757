"""Entries of the inverse of a sparse matrix where its Cholesky factor has entries."""

from libc.stdint cimport int32_t


def selected_inverse(
    const int32_t[::1] indptr,  # IN (n + 1,) columns of L, lower triangular with unit diagonal
    const int32_t[::1] indices,  # IN (n_entries,) rows, ascending in a column, the diagonal first
    const double[::1] lower,  # IN (n_entries,)
    const double[::1] diagonal,  # IN (n,) D of A = L D L'
    double[::1] inverse,  # OUT (n_entries,) the entries of the inverse of A at the places of L
    double[::1] total,  # workspace (n,), filled with 0
    int32_t[::1] column_of,  # workspace (n,), filled with -1
    double[::1] entry,  # workspace (n,)
):
    """Takahashi's recurrence, from the last column to the first: Z = D^-1 L^-1 + (I - L') Z."""
    cdef:
        Py_ssize_t j, k, i, p, q, n = diagonal.shape[0]
        double value, own
    with nogil:
        for j in range(n - 1, -1, -1):
            for p in range(indptr[j] + 1, indptr[j + 1]):
                k = indices[p]
                column_of[k] = <int32_t> j
                entry[k] = lower[p]
                total[k] = 0.0
            for p in range(indptr[j] + 1, indptr[j + 1]):
                k = indices[p]
                own = entry[k]
                # the diagonal, then every later row that column j has too, by symmetry for both
                total[k] += own * inverse[indptr[k]]
                for q in range(indptr[k] + 1, indptr[k + 1]):
                    i = indices[q]
                    if column_of[i] == j:
                        value = inverse[q]
                        total[i] += own * value
                        total[k] += entry[i] * value
            value = 1.0 / diagonal[j]
            for p in range(indptr[j] + 1, indptr[j + 1]):
                k = indices[p]
                inverse[p] = -total[k]
                value += entry[k] * total[k]
            inverse[indptr[j]] = value
