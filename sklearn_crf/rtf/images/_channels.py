"""Images without an axis of channels, and colours that are restored one by one."""

from typing import Any, NamedTuple

import numpy as np

from sklearn_crf.encoding import object_array

# Lengths of a last axis that is more likely of colours than of columns.
COLOURS = 3, 4


def of_clean_images(X):
    """Clean images with an axis of channels as input and target, and whether they are grey and had none."""
    # X: (n, H, W)
    _require_several(X)
    images = [np.asarray(x) for x in X]
    axes = {image.ndim for image in images}
    if axes == {2}:
        given = np.asarray(X)[..., None] if _is_stack(X) else object_array([image[..., None] for image in images])
        return given, X, True
    if axes in ({3}, {4}):
        return X, X, False
    raise ValueError(
        f"X must hold images of shape (H, W) or (H, W, C), or volumes of shape (D, H, W, C), where y is "
        f"None, got arrays of {sorted(axes)} axes."
    )


def _is_stack(X):
    return hasattr(X, "shape") and X.dtype != object


def _require_several(X):
    """Raise if X is or may be one image."""
    shape: tuple = X.shape if _is_stack(X) else ()
    if len(shape) == 2:
        raise ValueError(f"X of shape {shape} is one image: pass X[np.newaxis].")
    if len(shape) == 3 and shape[2] in (1, *COLOURS):
        one = "one image with an axis of channels" if shape[2] == 1 else "one colour image"
        raise ValueError(
            f"X of shape {shape} has two readings: {shape[0]} grey images of {shape[1]} x {shape[2]} pixels (pass "
            f"X[..., np.newaxis]), or {one} (pass X[np.newaxis])."
        )


class Channels(NamedTuple):
    """Images as a field of one channel takes them: with an axis of channels, and colours as images of their own."""

    X: object
    n_colours: Any  # list: of each image, 0 where it has no axis of channels; None if no image has several

    @classmethod
    def of(cls, X, n_features):
        """Read what is given to a field of n features that was trained on grey images without an axis of channels."""
        _require_several(X)
        if _is_stack(X) and X.ndim == 3:
            return cls(X[..., None], None)
        if _is_stack(X) and (n_features > 1 or X.ndim != 4 or X.shape[3] == 1):
            return cls(X, None)
        images = [np.asarray(x) for x in X]
        n_colours = [image.shape[2] if image.ndim == 3 else 0 for image in images]
        if n_features > 1 or max(n_colours, default=0) < 2:
            return cls(object_array([x[..., None] if x.ndim == 2 else x for x in images]), None)
        return cls(_apart(images), n_colours)

    def of_images(self, values):
        """Values of each image, for each of its colours."""
        if not isinstance(values, list | tuple):
            return values
        return [value for value, n in zip(values, self.n_colours, strict=True) for _ in range(max(n, 1))]

    def predicted(self, field, X, return_std, evidence, degradation):
        """Predictions of colour images by a field of grey ones, colour by colour."""
        known = None if evidence is None else [own[..., 0] for own in Channels.of(evidence, 1).X]
        found = field.predict(self.X, return_std, evidence=known, degradation=self.of_images(degradation))
        if return_std:
            return tuple(self.together(part, _is_stack(X)) for part in found)
        return self.together(found, _is_stack(X))

    def together(self, values, is_stack):
        """Values (H, W) of each colour as those of images."""
        found, first = [], 0
        for n in self.n_colours:
            own = values[first : first + max(n, 1)]
            found.append(np.stack(list(own), axis=-1) if n else own[0])
            first += max(n, 1)
        return np.stack(found) if is_stack else object_array(found)


def _apart(images):
    """Images (H, W, 1) of the colours of images."""
    return object_array(
        [plane[..., None] for x in images for plane in (np.moveaxis(x, 2, 0) if x.ndim == 3 else x[None])]
    )


def require_channels(X, n_features, lattice_ndim):
    """Raise if X is of colours, and the field was fitted to images of one channel."""
    if lattice_ndim != 2 or n_features != 1 or len(X) == 0:
        return
    shape = np.shape(X[0])
    if len(shape) == 3 and shape[2] in COLOURS:
        raise ValueError(
            f"X has {shape[2]} features, but RegressionTreeField is expecting 1 features as input. It restores colours "
            "one by one: np.stack([field.predict(X[..., [c]]) for c in range(3)], axis=-1)."
        )
