"""Best joint state of a factor, whose allowed joint states are listed or given by counts of nodes in a state."""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t


cdef enum Kind:
    BINARY_PAIR = 0  # two nodes of two states, all four pairs allowed
    LISTED = 1
    COUNTED = 2


cdef struct Factor:
    Py_ssize_t arity
    Py_ssize_t width  # row length of arrays by slot
    Py_ssize_t n_cells  # number of listed joint states, or of runs of counts
    const int32_t* node  # (arity,)
    const int32_t* place  # (n_cells, arity) joint states; or (arity,) counted state of each node
    const int32_t* run  # (n_cells, 2) first and last count of each run
    const double* score  # (n_cells,)
    const int32_t* n_states  # (N,)


cdef struct Workspace:
    double* r  # (arity, width)
    double* a  # (arity, width)
    double* gain  # (arity, width)
    double* system  # (capacity, capacity) Cholesky factor of the system
    double* b  # (capacity,), like the next three arrays
    double* ones
    double* v
    double* h
    double* sorted  # (arity,)
    int32_t* order  # (arity,)
    int32_t* best  # (arity,)


cdef inline double best_listed(const Factor* f, const double* x, double scale, int32_t* best) noexcept nogil:
    cdef:
        Py_ssize_t cell, j, top_cell = 0
        double score, top = -INFINITY
        const int32_t* place = f.place
    for cell in range(f.n_cells):
        score = scale * f.score[cell]
        for j in range(f.arity):
            score += x[j * f.width + place[j]]
        place += f.arity
        if score > top:
            top = score
            top_cell = cell
    for j in range(f.arity):
        best[j] = f.place[top_cell * f.arity + j]
    return top


cdef inline void sort_descending(double* x, int32_t* order, Py_ssize_t n) noexcept nogil:
    """Sort x, and ``order`` along with it, by heap sort."""
    cdef:
        Py_ssize_t start = n // 2, end = n, root, child
        double value
        int32_t number
    while end > 1:
        if start > 0:
            start -= 1
        else:
            end -= 1
            x[end], x[0] = x[0], x[end]
            order[end], order[0] = order[0], order[end]
        root, value, number = start, x[start], order[start]
        child = 2 * root + 1
        while child < end:
            if child + 1 < end and x[child + 1] < x[child]:
                child += 1
            if x[child] >= value:
                break
            x[root], order[root] = x[child], order[child]
            root = child
            child = 2 * root + 1
        x[root], order[root] = value, number


cdef inline double best_counted(const Factor* f, const double* x, double scale, Workspace* workspace,
                                int32_t* best) noexcept nogil:
    """Find the best joint state by counts: the nodes of largest gain are counted, for the best allowed count."""
    cdef:
        Py_ssize_t j, k, other, n, n_best = -1, run, counted
        double base = 0, gained, score, top = -INFINITY
    for j in range(f.arity):
        counted = f.place[j]
        other = 1 if counted == 0 else 0
        for k in range(f.n_states[f.node[j]]):
            if k != counted and x[j * f.width + k] > x[j * f.width + other]:
                other = k
        best[j] = <int32_t> other
        base += x[j * f.width + other]
        workspace.sorted[j] = x[j * f.width + counted] - x[j * f.width + other]
        workspace.order[j] = <int32_t> j
    sort_descending(workspace.sorted, workspace.order, f.arity)
    for run in range(f.n_cells):
        gained = 0
        for n in range(f.run[2 * run + 1] + 1):
            if n > 0:
                gained += workspace.sorted[n - 1]
            if n >= f.run[2 * run]:
                score = base + gained + scale * f.score[run]
                if score > top:
                    top = score
                    n_best = n
    for n in range(n_best):
        j = workspace.order[n]
        best[j] = f.place[j]
    return top


cdef inline double best_state(const Factor* f, Kind kind, const double* x, double scale, Workspace* workspace,
                              int32_t* best) noexcept nogil:
    """Return the largest sum of scale * c and the entries of x; write its joint state to ``best``."""
    if kind == COUNTED:
        return best_counted(f, x, scale, workspace, best)
    return best_listed(f, x, scale, best)


cdef inline double score_of(const Factor* f, Kind kind, const int32_t* state) noexcept nogil:
    """Return the score c of an allowed joint state."""
    cdef Py_ssize_t cell, j, count = 0
    if kind == COUNTED:
        for j in range(f.arity):
            count += state[j] == f.place[j]
        for cell in range(f.n_cells):
            if f.run[2 * cell] <= count <= f.run[2 * cell + 1]:
                return f.score[cell]
        return -INFINITY
    for cell in range(f.n_cells):
        for j in range(f.arity):
            if f.place[cell * f.arity + j] != state[j]:
                break
        else:
            return f.score[cell]
    return -INFINITY
