"""Compiled loops, all at one level of vector units: results are the same bits wherever that level is used."""

try:
    from sklearn_crf.kernels.vector_level import fix_vector_level
except ModuleNotFoundError as error:
    raise ImportError(
        f"the kernels in {__path__[0]} are not compiled: if this is the source folder, start Python in another folder "
        "to use the installed package, or compile the kernels in place with pip install --editable ."
    ) from error

VECTOR_LEVEL = fix_vector_level()
