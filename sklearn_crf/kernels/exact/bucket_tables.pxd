"""Tables of an elimination bucket: filled from their parts, and distributed to these parts again.

The scores over a node v and its separator S are the sum of two tables that share only the node,

    psi(y_v, y_S) = left(y_A, y_v) + right(y_v, y_B),    A and B the parts of S.

Each table is a sum of parts over some of its nodes: scores of factors, and messages of earlier buckets.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset

# Rows are padded to this many numbers: the longest vector of any processor.
cdef enum:
    PADDED = 4

# Largest number of axes of a part: more axes would mean 2**63 cells.
cdef enum:
    MOST_AXES = 64


cdef struct Bucket:
    int64_t own  # states of the node
    int64_t left  # joint states of A
    int64_t right  # joint states of B
    int64_t table  # start of the left table (left, own); the right table (own, right) follows
    int64_t message  # start of its message (left, right)
    int64_t shift  # start of the maxima of rows (left), followed by the maxima of columns (right)
    int64_t node  # start of the marginals of the node
    int64_t first_part
    int64_t last_part


cdef struct Part:
    int64_t in_right  # whether the part belongs to the right table
    int64_t is_message  # message of an earlier bucket, else scores of a factor
    int64_t start
    int64_t first_axis
    int64_t last_axis


cdef struct Axis:
    int64_t extent
    int64_t of_table  # step in the table
    int64_t of_part  # step in the part; 0 if it does not depend on this axis


cdef inline const Part* parts_of(const int64_t[:, ::1] parts) noexcept nogil:
    return <const Part*> &parts[0, 0] if parts.shape[0] else NULL


cdef inline const Axis* axes_of(const int64_t[:, ::1] axes) noexcept nogil:
    return <const Axis*> &axes[0, 0] if axes.shape[0] else NULL


cdef inline const double* values_of(const double[::1] values) noexcept nogil:
    return &values[0] if values.shape[0] else NULL


cdef inline Py_ssize_t padded(Py_ssize_t n) noexcept nogil:
    return (n + PADDED - 1) // PADDED * PADDED


cdef inline void add_run(double* to, Py_ssize_t step, const double* given, Py_ssize_t given_step,
                         Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    if step == 1 and given_step == 1:
        for i in range(n):
            to[i] += given[i]
    elif step == 1 and given_step == 0:
        for i in range(n):
            to[i] += given[0]
    else:
        for i in range(n):
            to[i * step] += given[i * given_step]


cdef inline void add_part(const Axis* axes, Py_ssize_t n_axes, double* table, double* part, bint back) noexcept nogil:
    """Add a part to a table of its bucket or, backwards, the table to the part."""
    cdef:
        int64_t[MOST_AXES] at
        const Axis* last = axes + n_axes - 1
        Py_ssize_t k
    for k in range(n_axes - 1):
        at[k] = 0
    while True:
        if back:
            add_run(part, last.of_part, table, last.of_table, last.extent)
        else:
            add_run(table, last.of_table, part, last.of_part, last.extent)
        k = n_axes - 2
        while k >= 0:
            at[k] += 1
            table += axes[k].of_table
            part += axes[k].of_part
            if at[k] < axes[k].extent:
                break
            at[k] = 0
            table -= axes[k].extent * axes[k].of_table
            part -= axes[k].extent * axes[k].of_part
            k -= 1
        if k < 0:
            return


cdef inline void add_parts(const Bucket* b, const Part* parts, const Axis* axes, double* left, double* values,
                           double* messages, bint back) noexcept nogil:
    cdef:
        const Part* part
        Py_ssize_t p
        double* right = left + b.left * padded(b.own)
        double* table
        double* source
    for p in range(b.first_part, b.last_part):
        part = parts + p
        table = right if part.in_right else left
        source = (messages if part.is_message else values) + part.start
        add_part(axes + part.first_axis, part.last_axis - part.first_axis, table, source, back)


cdef inline void fill_tables(const Bucket* b, const Part* parts, const Axis* axes, const double* values,
                             double* messages, double* left) noexcept nogil:
    """Fill both tables with the sums of their parts."""
    memset(left, 0, (b.left * padded(b.own) + b.own * padded(b.right)) * sizeof(double))
    add_parts(b, parts, axes, left, <double*> values, messages, False)


cdef inline void take_apart(const Bucket* b, const Part* parts, const Axis* axes, double* left, double* values,
                            double* messages) noexcept nogil:
    """Add the tables to their parts, summed over the nodes that are not in the part."""
    add_parts(b, parts, axes, left, values, messages, True)
