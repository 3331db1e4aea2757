"""Features of pixels from patches of training images: each patch adds its mask where it matches an image best."""

import numpy as np
import scipy.fft
import scipy.sparse as sp
from scipy.ndimage import binary_dilation, binary_erosion, uniform_filter

# Least standard deviation of patches, as patches without contrast match anywhere
_LEAST_DEVIATION = 0.02


class PatchMasks:
    """Random patches at boundaries of masks, no two of which are similar, and the features that they give images.

    Parameters
    ----------
    size : int
        Height and width of a patch.
    n_patches : int
    most_alike : float
        Largest allowed correlation of two patches.
    random_state : int
    """

    def __init__(self, size, n_patches, most_alike=0.8, random_state=0):
        self.size = size
        self.n_patches = n_patches
        self.most_alike = most_alike
        self.random_state = random_state

    def fit(self, images, masks):
        rng = np.random.RandomState(self.random_state)
        self.patches_, self.masks_, self.source_ = [], [], []
        rows = np.zeros((0, self.size**2))
        corners = [self._corners(mask) for mask in masks]
        for _ in range(50 * self.n_patches):
            i = rng.randint(len(images))
            if not len(corners[i]):
                continue
            place = tuple(slice(start, start + self.size) for start in corners[i][rng.randint(len(corners[i]))])
            patch = images[i][place]
            if patch.std() < _LEAST_DEVIATION:
                continue
            patch = (patch - patch.mean()) / np.linalg.norm(patch - patch.mean())
            if np.abs(rows @ patch.ravel()).max(initial=0) > self.most_alike:
                continue
            rows = np.vstack([rows, patch.ravel()])
            self.patches_.append(patch)
            self.masks_.append(np.where(masks[i][place], 1.0, -1.0))
            self.source_.append(i)
            if len(rows) == self.n_patches:
                break
        return self

    def _corners(self, mask):
        """Return the upper left corners of patches inside the image whose centre is on the boundary of the mask."""
        boundary = binary_dilation(mask) & ~binary_erosion(mask)
        corners = np.argwhere(boundary) - self.size // 2
        inside = (corners >= 0).all(axis=1) & (corners + self.size <= mask.shape).all(axis=1)
        return corners[inside]

    def transform(self, image, without=None):
        """Return features of pixels, CSR: the mask of each patch at its best match, times the correlation there.

        Patches are not matched with the image that they were taken from (``without``), where they would match too well,
        nor with images that are smaller than a patch.
        """
        height, width = image.shape
        if min(height, width) < self.size:
            return sp.csr_matrix((height * width, len(self.masks_)), dtype=np.float32)
        shape = [scipy.fft.next_fast_len(n, real=True) for n in image.shape]
        spectra = np.conj(scipy.fft.rfft2(np.array(self.patches_), shape))
        products = scipy.fft.irfft2(scipy.fft.rfft2(image - image.mean(), shape) * spectra, shape)
        products = products[:, : height - self.size + 1, : width - self.size + 1]
        correlation = np.abs(products) / self._deviations(image)
        best = correlation.reshape(len(correlation), -1).argmax(axis=1)
        tops, lefts = np.unravel_index(best, correlation.shape[1:])
        used = np.flatnonzero(np.array(self.source_) != without) if without is not None else np.arange(len(best))
        within = np.arange(self.size)
        rows = (tops[used, None, None] + within[:, None]) * width + lefts[used, None, None] + within
        columns = np.broadcast_to(used[:, None, None], rows.shape)
        strength = correlation.reshape(len(correlation), -1)[used, best[used]]
        values = np.array(self.masks_)[used] * strength[:, None, None]
        shape = height * width, len(best)
        entries = values.astype(np.float32).ravel(), (rows.ravel(), columns.ravel())
        return sp.csr_matrix(entries, shape)

    def _deviations(self, image):
        """Return the norm of each window of the image minus its mean, by upper left corner."""
        mean = uniform_filter(image, self.size, mode="constant")
        variance = uniform_filter(image**2, self.size, mode="constant") - mean**2
        first = self.size // 2
        stop = [first + n - self.size + 1 for n in image.shape]
        deviation = np.sqrt(np.maximum(variance[first : stop[0], first : stop[1]], _LEAST_DEVIATION**2))
        return self.size * deviation
