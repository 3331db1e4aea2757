"""Images as transformers take them: grey or of several channels, of equal sizes or not."""

import numpy as np


def is_stack(X):
    """Whether X is one array of images of equal size."""
    return isinstance(X, np.ndarray) and X.dtype != object


def as_images(X):
    """List of (H, W, C) arrays, float32 or float64."""
    if is_stack(X) and X.ndim not in (3, 4):
        raise ValueError(
            f"X must be images of shape (n, H, W) or (n, H, W, C), got {X.shape}: one image is X[np.newaxis]."
        )
    if not len(X):
        raise ValueError("X holds no image.")
    images = []
    for i, image in enumerate(X):
        image = np.asarray(image)
        if image.ndim not in (2, 3) or 0 in image.shape:
            raise ValueError(f"X[{i}] must be an image of shape (H, W) or (H, W, C), got {image.shape}.")
        if image.dtype.kind not in "fiub":
            raise ValueError(f"X[{i}] must hold real numbers, got {image.dtype}.")
        image = image if image.ndim == 3 else image[..., None]
        if images and image.shape[2] != images[0].shape[2]:
            raise ValueError(f"X[{i}] has {image.shape[2]} channels, but X[0] has {images[0].shape[2]}.")
        image = image if image.dtype in (np.float32, np.float64) else image.astype(np.float32)
        if not np.isfinite(image).all():
            raise ValueError(f"X[{i}] contains NaN or infinity.")
        images.append(image)
    return images
