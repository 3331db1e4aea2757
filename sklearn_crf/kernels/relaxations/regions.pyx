"""Messages between regions of a relaxation and the larger regions (holders) that contain them."""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t


def region_sweep(
    double[::1] values,  # IN/OUT tables of all regions, a reparameterisation of the score
    const int64_t[::1] table_ptr,  # IN (n_regions + 1,)
    const int32_t[::1] parts,  # IN (P,) regions that are contained in others, in the order of the sweep
    const int64_t[::1] holder_ptr,  # IN (P + 1,) first holder of each part
    const int32_t[::1] holders,  # IN regions that contain a part
    const int64_t[::1] place_ptr,  # IN first entry of each holder in `place`
    const int32_t[::1] place,  # IN cell of the part, for each cell of a holder
    const double[:, ::1] share,  # IN (2, n_holders) share of the part's table that the holder gets, forwards and back
    bint back,  # IN
    double[::1] maxima,  # workspace (cells of the largest part,)
):
    """For each part in turn, collect the maxima of its holders in its table, and distribute it among the holders.

    The sum of the maxima of all tables does not increase.
    """
    cdef:
        Py_ssize_t n_parts = parts.shape[0], step, p, j, cell, n_own
        Py_ssize_t own
        double kept
    with nogil:
        for step in range(n_parts):
            p = n_parts - 1 - step if back else step
            own = table_ptr[parts[p]]
            n_own = table_ptr[parts[p] + 1] - own
            for j in range(holder_ptr[p], holder_ptr[p + 1]):
                gather(
                    &values[table_ptr[holders[j]]], table_ptr[holders[j] + 1] - table_ptr[holders[j]],
                    &place[place_ptr[j]], &values[own], n_own, &maxima[0]
                )
            kept = 1
            for j in range(holder_ptr[p], holder_ptr[p + 1]):
                if share[back, j] > 0:
                    kept -= share[back, j]
                    hand_on(
                        &values[table_ptr[holders[j]]], table_ptr[holders[j] + 1] - table_ptr[holders[j]],
                        &place[place_ptr[j]], &values[own], share[back, j]
                    )
            for cell in range(n_own):
                # The part may keep nothing, but forbidden cells remain forbidden.
                if values[own + cell] > -INFINITY:
                    values[own + cell] *= kept


cdef inline void gather(double* holder, Py_ssize_t n_cells, const int32_t* place, double* part, Py_ssize_t n_own,
                        double* maxima) noexcept nogil:
    """Move the maximum of a holder for each cell of its part to the table of the part."""
    cdef Py_ssize_t cell
    for cell in range(n_own):
        maxima[cell] = -INFINITY
    for cell in range(n_cells):
        if holder[cell] > maxima[place[cell]]:
            maxima[place[cell]] = holder[cell]
    for cell in range(n_cells):
        if maxima[place[cell]] > -INFINITY:
            holder[cell] -= maxima[place[cell]]
    for cell in range(n_own):
        part[cell] += maxima[cell]


cdef inline void hand_on(double* holder, Py_ssize_t n_cells, const int32_t* place, const double* part,
                         double share) noexcept nogil:
    cdef Py_ssize_t cell
    for cell in range(n_cells):
        holder[cell] += share * part[place[cell]]
