/* Included by indexed_rows.h once for each length of vectors, with BYTES, TARGET and ROWS(name) defined. */

typedef double ROWS(vector) __attribute__((vector_size(BYTES)));

#define LANES ((ptrdiff_t)(BYTES / sizeof(double)))

/* n_vectors is a constant of at most 4, so that the sums stay in registers. */
TARGET static inline __attribute__((always_inline)) void ROWS(sum_block)(const double *rows, const int32_t *index,
                                                                         ptrdiff_t n, ptrdiff_t width, double *out,
                                                                         const int n_vectors)
{
    ROWS(vector) total[4] = {{0}}, row;
    for (ptrdiff_t q = 0; q < n; q++) {
        const double *from = rows + index[q] * width;
        for (int v = 0; v < n_vectors; v++) {
            memcpy(&row, from + v * LANES, sizeof(row));
            total[v] += row;
        }
    }
    memcpy(out, total, n_vectors * sizeof(row));
}

TARGET static void ROWS(sum_indexed_rows)(const double *rows, const int32_t *index, ptrdiff_t n, ptrdiff_t width,
                                          double *out)
{
    ptrdiff_t k = 0;
    for (; k + 4 * LANES <= width; k += 4 * LANES)
        ROWS(sum_block)(rows + k, index, n, width, out + k, 4);
    for (; k + LANES <= width; k += LANES)
        ROWS(sum_block)(rows + k, index, n, width, out + k, 1);
    for (; k < width; k++) {
        out[k] = 0;
        for (ptrdiff_t q = 0; q < n; q++)
            out[k] += rows[index[q] * width + k];
    }
}

TARGET static void ROWS(add_to_indexed_rows)(double *rows, const int32_t *index, ptrdiff_t n, ptrdiff_t width,
                                             const double *added)
{
    for (ptrdiff_t q = 0; q < n; q++) {
        double *row = rows + index[q] * width;
        ptrdiff_t k = 0;
        for (; k + LANES <= width; k += LANES) {
            ROWS(vector) own, more;
            memcpy(&own, row + k, sizeof(own));
            memcpy(&more, added + k, sizeof(more));
            own += more;
            memcpy(row + k, &own, sizeof(own));
        }
        for (; k < width; k++)
            row[k] += added[k];
    }
}

#undef LANES
