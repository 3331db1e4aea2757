"""Free-threaded Python: no kernel enables the GIL again. Speed-up by threads is tested in test_same_bits.py."""

import subprocess
import sys
import sysconfig

import pytest

IMPORTS = """
import importlib, pkgutil, sys
import joblib, scipy.fft, scipy.ndimage, scipy.optimize, scipy.sparse.linalg, sklearn.cluster, sklearn.linear_model
assert not sys._is_gil_enabled(), "a package that this one uses"
import sklearn_crf
for module in pkgutil.walk_packages(sklearn_crf.__path__, "sklearn_crf."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:  # of what is not installed
        assert "sklearn_crf" not in str(error), error
    assert not sys._is_gil_enabled(), module.name
"""


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL")
def test_no_kernel_brings_the_gil_back():
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", IMPORTS], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
