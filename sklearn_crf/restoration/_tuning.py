"""Constants of restoration that were tuned, and what each trades."""

# Least noise of observations that are blurred or small, in bytes: with less, rounding and what the field knows no
# reason for come out as ripples.
LEAST_NOISE = 0.5

# Share of the frequencies that a blur leaves least of, by which noise is estimated. Of more, detail is left; of less,
# the estimate is by chance (benchmarks/quality/restore.py).
BLURRED_AWAY = 0.1
