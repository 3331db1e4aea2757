"""Tables 6 and 7 of Jancsary (2012): results of fields and rivals in the thesis, by row names of the benchmarks."""


def _table(settings, text):
    """Return [PSNR, MAE, SSIM] by name and setting, from text with a line for each name."""
    table = {}
    for line in text.strip().splitlines():
        name, *cells = (cell.strip() for cell in line.split("|"))
        measures = [[float(value) for value in cell.split()] for cell in cells]
        table[name] = dict(zip(settings, map(list, zip(*measures, strict=True)), strict=True))
    return table


# Denoising. The method of sparse codes in the thesis is LSSC.
DENOISING = _table(
    (20, 30, 40, 50),
    """
    input | 22.11 18.59 16.09 14.15 | 15.96 23.93 31.91 39.89 | 0.541 0.401 0.307 0.242
    FoE | 28.87 26.81 25.45 24.47 | 6.79 8.56 10.03 11.24 | 0.848 0.776 0.712 0.660
    BM3D | 29.25 27.32 25.98 25.09 | 6.40 7.95 9.25 10.22 | 0.855 0.793 0.741 0.699
    sparse codes | 29.40 27.39 26.08 25.09 | 6.39 7.96 9.23 10.33 | 0.861 0.799 0.745 0.700
    EPLL | 29.38 27.44 26.17 25.22 | 6.37 7.90 9.12 10.17 | 0.864 0.800 0.747 0.703
    uniform average | 29.47 27.50 26.21 25.25 | 6.30 7.84 9.08 10.12 | 0.863 0.802 0.749 0.705
    field, psnr | 28.95 26.97 25.71 24.76 | 6.78 8.44 9.72 10.85 | 0.840 0.771 0.716 0.666
    field, psnr + BM3D | 29.52 27.58 26.24 25.38 | 6.23 7.73 8.99 9.92 | 0.863 0.803 0.750 0.711
    field, psnr + all | 29.67 27.72 26.43 25.51 | 6.14 7.62 8.80 9.78 | 0.868 0.809 0.758 0.717
    field, mae | 28.92 26.94 25.69 24.75 | 6.78 8.43 9.71 10.81 | 0.840 0.771 0.715 0.669
    field, mae + BM3D | 29.53 27.58 26.22 25.36 | 6.21 7.71 8.96 9.88 | 0.863 0.803 0.750 0.711
    field, ssim | 28.49 26.55 25.31 24.41 | 7.17 8.92 10.23 11.34 | 0.844 0.778 0.721 0.676
    field, ssim + BM3D | 29.17 27.13 25.69 24.85 | 6.60 8.31 9.80 10.79 | 0.868 0.809 0.757 0.719
    field, pseudolikelihood | 28.61 26.66 25.32 24.42 | 7.09 8.80 10.28 11.37 | 0.828 0.758 0.694 0.653
    field, pseudolikelihood + BM3D | 29.43 27.44 26.10 25.21 | 6.32 7.88 9.16 10.13 | 0.861 0.799 0.747 0.708
    """,
)

# Removal of JPEG artefacts
DEBLOCKING = _table(
    ("quality10", "quality20", "quality30", "quality40"),
    """
    input | 26.62 28.80 30.08 31.01 | 8.64 6.64 5.70 5.11 | 0.790 0.868 0.900 0.918
    field, psnr | 27.66 29.84 31.15 32.10 | 7.49 5.78 4.95 4.44 | 0.817 0.886 0.914 0.930
    field, mae | 27.66 29.83 31.16 32.10 | 7.46 5.77 4.94 4.43 | 0.817 0.886 0.914 0.930
    field, ssim | 27.18 29.47 30.81 31.80 | 8.07 6.12 5.23 4.66 | 0.823 0.889 0.916 0.932
    field, pseudolikelihood | 27.50 29.69 31.01 31.96 | 7.64 5.90 5.05 4.53 | 0.813 0.883 0.913 0.928
    """,
)


def beside(table, name, setting, rival):
    """Return the figures of the thesis for a row, if any: PSNR minus the PSNR of a rival, and three measures."""
    found = table.get(name, {}).get(setting)
    if found is None:
        return {}
    return {"thesis": round(found[0] - table[rival][setting][0], 2), "thesis_measures": found}
