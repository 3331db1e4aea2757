"""Restore image files: ``python -m sklearn_crf restore photo.jpg restored.png``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sklearn_crf.restoration import restore


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, restore an image file, and write the restored image to another file."""
    parser = argparse.ArgumentParser(prog="python -m sklearn_crf", description="Discriminative random fields.")
    commands = parser.add_subparsers(required=True, metavar="restore")
    command = commands.add_parser("restore", help="remove noise, blocks, gaps in an image or a blur, or enlarge")
    command.add_argument("image", type=Path, help="image file to read")
    command.add_argument("restored", type=Path, help="image file to write")
    command.add_argument("--noise", type=float, help="standard deviation of the noise; estimated by default")
    command.add_argument("--jpeg", action="store_true", help="remove JPEG blocks, which are detected by default")
    command.add_argument("--mask", type=Path, help="image file that is not black where pixels are missing")
    command.add_argument("--kernel", type=Path, help="image file of the kernel that blurred the image")
    command.add_argument("--scale", type=int, default=1, help="how many times larger the result is")
    command.add_argument("--quality", choices=("fast", "default", "high"), default="default", help="size of the model")
    command.add_argument("--jobs", type=int, help="threads")
    _restore(parser, parser.parse_args(arguments))


def _restore(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Restore the image file that is named on the command line."""
    try:
        from skimage import io
    except ImportError:
        parser.error("image files need scikit-image: pip install sklearn_crf[images]")
    try:
        image = io.imread(given.image)
        mask = None if given.mask is None else _convert_to_grey(io.imread(given.mask)) > 0
        kernel = None if given.kernel is None else _convert_to_grey(io.imread(given.kernel)).astype(np.float64)
        noise = "auto" if given.noise is None else given.noise
        options = {"noise": noise, "jpeg": given.jpeg or "auto", "mask": mask, "kernel": kernel, "scale": given.scale}
        restored = restore(image, **options, quality=given.quality, n_jobs=given.jobs)
        io.imsave(given.restored, restored, check_contrast=False)
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _convert_to_grey(image: np.ndarray) -> np.ndarray:
    """Return the largest colour channel of each pixel, without the alpha channel."""
    return image if image.ndim == 2 else image[..., :3].max(axis=2)


if __name__ == "__main__":
    main()
