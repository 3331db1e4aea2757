"""Restore or label image files, as in ``python -m sklearn_crf restore photo.jpg restored.png``."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from sklearn_crf._ranges import convert_to_bytes
from sklearn_crf.restoration import restore


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, restore or label an image file, and write the result to another file."""
    parser = argparse.ArgumentParser(prog="python -m sklearn_crf", description="Discriminative random fields.")
    commands = parser.add_subparsers(required=True, metavar="restore|label")
    command = commands.add_parser("restore", help="remove noise, JPEG blocks or a blur, fill gaps, or enlarge")
    command.add_argument("image", type=Path, help="image file to read")
    command.add_argument("result", type=Path, help="image file to write")
    command.add_argument("--noise", type=float, help="standard deviation of the noise; estimated by default")
    command.add_argument("--jpeg", action="store_true", help="remove JPEG blocks, which are detected by default")
    command.add_argument("--mask", type=Path, help="image file that is bright where pixels are missing")
    command.add_argument("--kernel", type=Path, help="image file of the kernel that blurred the image")
    command.add_argument("--scale", type=int, default=1, help="how many times larger the result is")
    command.add_argument("--quality", choices=("fast", "default", "high"), default="default", help="size of the model")
    command.add_argument("--jobs", type=int, help="threads")
    command.set_defaults(run=_restore)
    command = commands.add_parser("label", help="give each pixel the colour of a stroke, learned from all strokes")
    command.add_argument("image", type=Path, help="image file to read")
    command.add_argument("strokes", type=Path, help="image file of equal size: strokes of any colours on black")
    command.add_argument("result", type=Path, help="image file to write")
    command.add_argument("--jobs", type=int, help="threads")
    command.set_defaults(run=_label)
    given = parser.parse_args(arguments)
    try:
        from skimage import io
    except ImportError:
        parser.error("image files need scikit-image: pip install sklearn_crf[images]")
    try:
        found = given.run(io, given)
        # Write to a temporary file first. If writing fails, an existing result file is kept.
        with TemporaryDirectory(dir=given.result.absolute().parent) as folder:
            written = Path(folder, given.result.name)
            io.imsave(written, found, check_contrast=False)
            written.replace(given.result)
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _restore(io: Any, given: argparse.Namespace) -> np.ndarray:
    """Return the restored image."""
    image, alpha = _read_image(io, given.image)
    _require_writable(io, given.result, image if alpha is None else np.dstack([image, alpha]))
    mask = None if given.mask is None else _read_mask(io, given.mask)
    kernel = None if given.kernel is None else _read_grey(io, given.kernel).astype(np.float64)
    noise = "auto" if given.noise is None else given.noise
    options = {"noise": noise, "jpeg": given.jpeg or "auto", "mask": mask, "kernel": kernel, "scale": given.scale}
    found = restore(image, **options, quality=given.quality, n_jobs=given.jobs)
    return found if alpha is None else np.dstack([found, alpha.repeat(given.scale, axis=0).repeat(given.scale, axis=1)])


def _label(io: Any, given: argparse.Namespace) -> np.ndarray:
    """Return an image (H, W, 3) in which each pixel has the colour of its class."""
    # Import the classifier here, because restoration does not need it.
    from sklearn_crf.estimators.drf import DRFClassifier

    X, strokes = convert_to_bytes(_read_colours(io, given.image))[np.newaxis], _read_colours(io, given.strokes)
    _require_writable(io, given.result, strokes)
    if X.shape[1:] != strokes.shape:
        raise ValueError(f"{given.strokes} has shape {strokes.shape[:2]}, but {given.image} has {X.shape[1:3]}.")
    colours, classes = np.unique(strokes.reshape(-1, 3), axis=0, return_inverse=True)
    # Black pixels have no stroke. If there are black pixels, black is the first colour.
    is_drawn = colours.any(axis=1)
    y = np.where(is_drawn, np.arange(len(colours)), -1)[classes].reshape(1, *strokes.shape[:2])
    # Images of strokes have many colours if strokes have soft edges, or if the image was saved as JPEG.
    if not 2 <= is_drawn.sum() <= 32:
        raise ValueError(
            f"{given.strokes} has strokes of {is_drawn.sum()} colours: draw in 2 to 32 colours without soft edges, on "
            "a black or transparent background, and save as PNG."
        )
    field = DRFClassifier(missing_label=-1, n_jobs=given.jobs).fit(X, y)
    return colours[field.predict(X, evidence=y, inference="map")[0]]


def _read_mask(io: Any, path: Path) -> np.ndarray:
    """Read a mask (H, W) that is true at missing pixels: pixels at least half as bright as the brightest pixel."""
    grey = _read_grey(io, path)
    if not grey.any():
        raise ValueError(f"{path} is black or transparent everywhere: draw the missing pixels in white.")
    # JPEG compression surrounds bright areas with dark ripples, which are not part of the mask.
    return grey >= grey.max() / 2


def _read_grey(io: Any, path: Path) -> np.ndarray:
    """Read an image file as grey values (H, W): the largest colour value of each pixel, or 0 if it is transparent."""
    return _read_colours(io, path).max(axis=2)


def _read_colours(io: Any, path: Path) -> np.ndarray:
    """Read an image file as red, green and blue, (H, W, 3); transparent pixels become black."""
    image, alpha = _read_image(io, path)
    image = image if image.ndim == 3 else np.repeat(image[..., np.newaxis], 3, axis=2)
    return image if alpha is None else image * (alpha > 0)[..., np.newaxis]


def _read_image(io: Any, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read an image file as grey values (H, W) or colours (H, W, 3), and its alpha channel (H, W) or None."""
    try:
        image = _read_pixels(io, path)
    except Exception as error:  # readers raise errors of any type, such as SyntaxError, for damaged files
        reason, *_ = str(error).splitlines() or [type(error).__name__]
        raise ValueError(f"{path} cannot be read as an image ({reason}).") from error
    image = image[0] if image.ndim == 4 and len(image) == 1 else image
    if image.ndim == 2:
        return image, None
    if image.ndim != 3 or image.shape[2] > 4:
        raise ValueError(f"{path} has shape {image.shape}: save one image, in grey or colour.")
    n_colours = 1 if image.shape[2] < 3 else 3
    colours = image[..., 0] if n_colours == 1 else image[..., :3]
    return colours, image[..., n_colours] if image.shape[2] > n_colours else None


def _read_pixels(io: Any, path: Path) -> np.ndarray:
    """Read all channels of an image file. Rotate photographs upright, and convert CMYK colours to RGB."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            if file.mode == "CMYK":
                file = file.convert("RGB")
            elif "transparency" in file.info and file.mode in ("L", "P", "RGB") and getattr(file, "n_frames", 1) == 1:
                file = file.convert("RGBA")  # the file declares one colour transparent
            elif file.getexif().get(0x0112, 1) == 1:  # orientation of the camera
                return io.imread(path)
            return np.asarray(ImageOps.exif_transpose(file))
    except UnidentifiedImageError:
        return io.imread(path)


def _require_writable(io: Any, path: Path, image: np.ndarray) -> None:
    """Raise ValueError if the file format cannot store images of this type and number of channels."""
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{path} cannot be written, because its folder does not exist: create the folder first.")
    with TemporaryDirectory() as folder:
        try:
            io.imsave(Path(folder, f"corner{path.suffix}"), image[:8, :8], check_contrast=False)
        except (OSError, TypeError, ValueError) as error:
            n_channels = 1 if image.ndim == 2 else image.shape[2]
            raise ValueError(
                f"{path} cannot hold an image of {image.dtype} with {n_channels} channels ({error}): name a .tif file, "
                "which can, or convert the image first."
            ) from error


if __name__ == "__main__":
    main()
