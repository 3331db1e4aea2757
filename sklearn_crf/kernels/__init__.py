"""Compiled loops, all at one level of vector units: results are the same bits wherever that level is used."""

try:
    from sklearn_crf.kernels.vector_level import fix_vector_level
except ModuleNotFoundError as error:
    raise ImportError(
        f"the kernels in {__path__[0]} are not compiled: if this is the folder of the sources, start Python in another "
        "one to use the installed package, or compile them in place by pip install --editable ."
    ) from error

VECTOR_LEVEL = fix_vector_level()
