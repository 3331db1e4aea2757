"""Best pair of states of an edge, given scores of both ends."""

from libc.math cimport INFINITY

from sklearn_crf.kernels.messages.field cimport Field


cdef struct Pair:
    Py_ssize_t a  # state at the start of the half-edge
    Py_ssize_t b
    double score


cdef inline void top_two(const double* x, Py_ssize_t n, Py_ssize_t* best, Py_ssize_t* second) noexcept nogil:
    """Return the indices of the largest and second-largest number; the second is -1 for a single number."""
    cdef Py_ssize_t a
    best[0] = 0
    second[0] = -1
    for a in range(1, n):
        if x[a] > x[best[0]]:
            second[0] = best[0]
            best[0] = a
        elif second[0] < 0 or x[a] > x[second[0]]:
            second[0] = a


cdef inline void best_potts_pair(double on, double off, const double* x, const double* y, Py_ssize_t n_x,
                                 Py_ssize_t n_y, Pair* best) noexcept nogil:
    """Maximise x(a) + y(b) plus ``on`` for equal states or ``off`` for different states, in O(K)."""
    cdef:
        Py_ssize_t a, x_best, x_second, y_best, y_second
        double score
    best.a = best.b = 0
    best.score = -INFINITY
    for a in range(min(n_x, n_y)):
        score = x[a] + y[a] + on
        if score > best.score:
            best.a = best.b = a
            best.score = score
    top_two(x, n_x, &x_best, &x_second)
    top_two(y, n_y, &y_best, &y_second)
    if x_best != y_best:
        offer(best, x_best, y_best, x[x_best] + y[y_best] + off)
        return
    if x_second >= 0:
        offer(best, x_second, y_best, x[x_second] + y[y_best] + off)
    if y_second >= 0:
        offer(best, x_best, y_second, x[x_best] + y[y_second] + off)


cdef inline void offer(Pair* best, Py_ssize_t a, Py_ssize_t b, double score) noexcept nogil:
    if score > best.score:
        best.a = a
        best.b = b
        best.score = score


cdef inline void best_pair(Field[double]* f, int edge, const double* x, const double* y, Py_ssize_t n_x,
                           Py_ssize_t n_y, double* workspace, Pair* best) noexcept nogil:
    """Maximise x(a) + y(b) + edge score over the states of both ends; the first pair wins ties."""
    cdef:
        Py_ssize_t a, b, W = f.width
        const double* row
        double score, shift = 0, x_a
        int row_of_edge = f.factor[edge]
    if f.on != NULL:
        best_potts_pair(f.on[row_of_edge], f.off[row_of_edge], x, y, n_x, n_y,
                        best)
        best.score += f.shift[row_of_edge]
        return
    row = f.half_edge_factor(2 * edge, workspace, &shift)
    best.a = best.b = 0
    best.score = -INFINITY
    for a in range(n_x):
        x_a = x[a]
        if x_a == -INFINITY:
            continue
        for b in range(n_y):
            score = x_a + y[b] + row[a * W + b]
            if score > best.score:
                best.a = a
                best.b = b
                best.score = score
    best.score += shift
