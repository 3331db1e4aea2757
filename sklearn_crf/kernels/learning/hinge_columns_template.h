/* Included by hinge_columns.h once for each set of instructions, with TARGET and COLUMNS(name) defined: the compiler
   vectorises over the columns of a row. */

/* values[slot[q]] += factors[q] * row */
TARGET static void COLUMNS(add_to_slots)(double *restrict values, const int32_t *restrict slot,
                                         const double *restrict factors, ptrdiff_t n, const double *restrict row,
                                         ptrdiff_t width)
{
    for (ptrdiff_t q = 0; q < n; q++) {
        double *restrict own = values + slot[q] * width;
        const double factor = factors[q];
        for (ptrdiff_t k = 0; k < width; k++)
            own[k] += factor * row[k];
    }
}

/* by_column[k] = sum of x[rows[q]][k] * values[q][k], squares[k] = sum of values[q][k]^2 */
TARGET static void COLUMNS(weigh_rows)(const double *restrict x, const int32_t *restrict rows,
                                       const double *restrict values, ptrdiff_t n, ptrdiff_t width,
                                       double *restrict by_column, double *restrict squares)
{
    for (ptrdiff_t k = 0; k < width; k++)
        by_column[k] = squares[k] = 0;
    for (ptrdiff_t q = 0; q < n; q++) {
        const double *restrict at = x + rows[q] * width, *restrict own = values + q * width;
        for (ptrdiff_t k = 0; k < width; k++) {
            by_column[k] += at[k] * own[k];
            squares[k] += own[k] * own[k];
        }
    }
}

/* x[rows[q]] -= size * values[q]; lag changes likewise, times a factor */
TARGET static void COLUMNS(move_rows)(double *restrict x, double *restrict lag, const int32_t *restrict rows,
                                      const double *restrict values, ptrdiff_t n, ptrdiff_t width, double size,
                                      double factor)
{
    for (ptrdiff_t q = 0; q < n; q++) {
        double *restrict at = x + rows[q] * width, *restrict late = lag + rows[q] * width;
        const double *restrict own = values + q * width;
        for (ptrdiff_t k = 0; k < width; k++) {
            const double moved = size * own[k];
            at[k] -= moved;
            late[k] -= factor * moved;
        }
    }
}
