"""Checks an installed package: every module imports with the run-time dependencies alone, and a fit works."""

import importlib
import pkgutil
import sys
from pathlib import Path

import numpy as np

import sklearn_crf

package_folder = Path(sklearn_crf.__file__).parent
if Path(__file__).resolve().parents[1] in package_folder.parents:
    sys.exit(f"imported the source tree, {package_folder}, not what was installed")
if any(package_folder.rglob("*.pyx")):
    sys.exit("the sources of the kernels were installed too")

modules = [module.name for module in pkgutil.walk_packages(sklearn_crf.__path__, "sklearn_crf.")]
for name in modules:
    importlib.import_module(name)

rng = np.random.default_rng(0)
labels = np.zeros((4, 6, 6), dtype=int)
labels[:, 2:, 2:] = 1
images = (labels + rng.normal(scale=0.3, size=labels.shape))[..., np.newaxis]
accuracy = sklearn_crf.DRFClassifier().fit(images, labels).score(images, labels)
if accuracy < 0.9:
    sys.exit(f"DRFClassifier restores {accuracy:.0%} of the pixels of its training images")
print(f"sklearn_crf {sklearn_crf.__version__}: {len(modules)} modules imported, {accuracy:.0%} of pixels restored")
