"""``python -m sklearn_crf restore``."""

import subprocess
import sys

import numpy as np
import pytest

from sklearn_crf import restore
from sklearn_crf.__main__ import main

io = pytest.importorskip("skimage.io", reason="image files need scikit-image")


@pytest.fixture
def files(tmp_path):
    """Write an image and its mask, and return their folder."""
    image = np.random.default_rng(0).integers(256, size=(24, 30, 3)).astype(np.uint8)
    mask = np.zeros((24, 30), dtype=np.uint8)
    mask[5:9] = 255
    for name, values in (("photo.png", image), ("mask.png", mask)):
        io.imsave(tmp_path / name, values, check_contrast=False)
    return tmp_path


def test_command_restores_files(files):
    image, out = io.imread(files / "photo.png"), files / "restored.png"
    main(["restore", str(files / "photo.png"), str(out), "--noise", "20"])
    np.testing.assert_array_equal(io.imread(out), restore(image, noise=20.0))
    main(["restore", str(files / "photo.png"), str(out), "--jpeg", "--quality", "fast"])
    np.testing.assert_array_equal(io.imread(out), restore(image, jpeg=True, quality="fast"))
    main(["restore", str(files / "photo.png"), str(out), "--mask", str(files / "mask.png")])
    np.testing.assert_array_equal(io.imread(out), restore(image, mask=io.imread(files / "mask.png") > 0))
    main(["restore", str(files / "photo.png"), str(out), "--scale", "2"])
    assert io.imread(out).shape == (48, 60, 3)


def test_command_says_what_is_wrong(files):
    command = [sys.executable, "-m", "sklearn_crf", "restore", str(files / "nothing.png"), str(files / "out.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nothing.png" in done.stderr
    assert "Traceback" not in done.stderr
