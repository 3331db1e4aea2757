"""The functions of rows.h under a single name for both precisions."""

from cython cimport floating

cdef extern from "rows.h" nogil:
    void prefetch "ROWS_PREFETCH" (const void*)
    void exponentiate_all_float(float*, Py_ssize_t)
    void exponentiate_all_double(double*, Py_ssize_t)
    void logarithms "logarithms_double" (const double*, Py_ssize_t, double*)
    float row_max_float(const float*, Py_ssize_t)
    double row_max_double(const double*, Py_ssize_t)
    void row_quotient_float(const float*, const float*, Py_ssize_t, float*)
    void row_quotient_double(const double*, const double*, Py_ssize_t, double*)
    float row_below_best_float(const float*, Py_ssize_t, Py_ssize_t, float*)
    double row_below_best_double(const double*, Py_ssize_t, Py_ssize_t, double*)
    void sum_of_rows_float(const float*, const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, float*)
    void sum_of_rows_double(const double*, const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, double*)
    void sum_product_float(const float*, const float*, Py_ssize_t, Py_ssize_t, float*)
    void sum_product_double(const double*, const double*, Py_ssize_t, Py_ssize_t, double*)
    void max_sum_float(const float*, const float*, Py_ssize_t, Py_ssize_t, float*)
    void max_sum_double(const double*, const double*, Py_ssize_t, Py_ssize_t, double*)


cdef inline floating row_max(const floating* row, Py_ssize_t width) noexcept nogil:
    if floating is float:
        return row_max_float(row, width)
    else:
        return row_max_double(row, width)


cdef inline void sum_of_rows(
    const floating* base, const floating* rows, Py_ssize_t first, Py_ssize_t last, Py_ssize_t skip,
    Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        sum_of_rows_float(base, rows, first, last, skip, width, out)
    else:
        sum_of_rows_double(base, rows, first, last, skip, width, out)


cdef inline void sum_product(
    const floating* table, const floating* x, Py_ssize_t n, Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        sum_product_float(table, x, n, width, out)
    else:
        sum_product_double(table, x, n, width, out)


cdef inline void max_sum(
    const floating* table, const floating* x, Py_ssize_t n, Py_ssize_t width, floating* out
) noexcept nogil:
    if floating is float:
        max_sum_float(table, x, n, width, out)
    else:
        max_sum_double(table, x, n, width, out)


cdef inline void exponentiate_all(floating* x, Py_ssize_t n) noexcept nogil:
    if floating is float:
        exponentiate_all_float(x, n)
    else:
        exponentiate_all_double(x, n)


cdef inline void row_quotient(const floating* x, const floating* y, Py_ssize_t width, floating* out) noexcept nogil:
    if floating is float:
        row_quotient_float(x, y, width, out)
    else:
        row_quotient_double(x, y, width, out)


cdef inline floating row_below_best(const floating* row, Py_ssize_t n, Py_ssize_t width, floating* out) noexcept nogil:
    if floating is float:
        return row_below_best_float(row, n, width, out)
    else:
        return row_below_best_double(row, n, width, out)
