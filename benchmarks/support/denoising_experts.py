"""Three denoisers learned from clean images: mixtures of patches (EPLL), sparse codes, and fields of experts."""

import warnings

import numpy as np
import scipy.fft
from scipy.optimize import minimize, nnls
from sklearn.decomposition import MiniBatchDictionaryLearning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import orthogonal_mp_gram
from sklearn.mixture import GaussianMixture

SIDE = 8
N_PATCHES = 50_000


def fitted(estimator, patches):
    """Fit an estimator of scikit-learn without its convergence warnings, as few iterations are enough for patches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(patches)


def patches_of(image, side=SIDE, step=1):
    """Return the patches of an image, (n, side * side) float32, copied."""
    seen = np.lib.stride_tricks.sliding_window_view(image.astype(np.float32), (side, side))[::step, ::step]
    return seen.reshape(-1, side * side)


def overlaid(patches, shape, side=SIDE, step=1):
    """Return an image of sums of patches at their places, and the number of patches at each pixel."""
    sums, counts = np.zeros((2, *shape), dtype=np.float32)
    rows, columns = ((n - side) // step + 1 for n in shape)
    parts = patches.reshape(rows, columns, side, side)
    for i, j in np.ndindex(side, side):
        place = slice(i, i + step * rows, step), slice(j, j + step * columns, step)
        sums[place] += parts[:, :, i, j]
        counts[place] += 1
    return sums, counts


def drawn_patches(images, n, side=SIDE):
    """Return equally many random patches of each image, minus their means."""
    rng = np.random.default_rng(0)
    found = [rng.choice(patches_of(image, side), n // len(images), replace=False) for image in images]
    found = np.concatenate(found)
    return found - found.mean(axis=1, keepdims=True)


class PatchMixture:
    r"""Expected patch log-likelihood: half-quadratic steps that pull all patches to a mixture of Gaussians.

    .. math::
        \min_x \frac{1}{2 \sigma^2} \|x - y\|^2 - \frac{1}{64} \sum_P \log p(x_P)

    D. Zoran and Y. Weiss. From Learning Models of Natural Image Patches to Whole Image Restoration. ICCV 2011.
    """

    def __init__(self, images, n_components=60):
        mixture = GaussianMixture(n_components, reg_covar=0.5, max_iter=30, tol=1e-3, random_state=0)
        fitted(mixture, drawn_patches(images, N_PATCHES))
        self.log_weights = np.log(mixture.weights_)
        # Patches have zero mean, and the means of the mixture are close to zero.
        moments = mixture.covariances_ + mixture.means_[:, :, None] * mixture.means_[:, None, :]
        self.values, self.vectors = np.linalg.eigh(moments)
        self.values = np.maximum(self.values, 0.0)

    def __call__(self, noisy, sigma, strength=1.0):
        sigma = strength * sigma
        x = noisy.astype(np.float32)
        for beta in np.array([1, 4, 8, 16, 32]) / sigma**2:
            sums, counts = overlaid(self._estimates(patches_of(x), 1 / beta), x.shape)
            x = (noisy / sigma**2 + beta * sums / counts) / (1 / sigma**2 + beta)
        return x

    def _estimates(self, patches, variance):
        """Return patches filtered by the Wiener filters of their most likely components."""
        means = patches.mean(axis=1, keepdims=True)
        centred = patches - means
        best, likeliest = np.full(len(patches), -np.inf, dtype=np.float32), np.zeros(len(patches), dtype=int)
        for k, (values, vectors) in enumerate(zip(self.values, self.vectors, strict=True)):
            whitening = (vectors / np.sqrt(values + variance)).astype(np.float32)
            turned = centred @ whitening
            score = self.log_weights[k] - 0.5 * np.log(values + variance).sum()
            score = np.float32(score) - 0.5 * np.einsum("ij,ij->i", turned, turned)
            better = score > best
            best[better], likeliest[better] = score[better], k
        for k in np.unique(likeliest):
            own = likeliest == k
            shares = self.values[k] / (self.values[k] + variance)
            centred[own] = centred[own] @ (self.vectors[k] * shares @ self.vectors[k].T).astype(np.float32)
        return centred + means


class SparseCodes:
    """Sparse coding of patches with the fewest atoms of a learned dictionary that approximate a patch up to noise.

    M. Elad and M. Aharon. Image Denoising Via Sparse and Redundant Representations Over Learned Dictionaries. IEEE
    Transactions on Image Processing 15, 2006.
    """

    STEP = 2

    def __init__(self, images, n_atoms=256):
        learning = MiniBatchDictionaryLearning(
            n_atoms, alpha=20.0, batch_size=512, max_iter=3, random_state=0, fit_algorithm="cd", tol=0
        )
        self.atoms = fitted(learning, drawn_patches(images, N_PATCHES // 2)).components_

    def __call__(self, noisy, sigma, strength=1.0):
        # Extend the borders, as patches with this step would not cover them.
        more = [(0, (SIDE - n) % self.STEP) for n in noisy.shape]
        padded = np.pad(noisy.astype(np.float32), more, mode="symmetric")
        patches = patches_of(padded, step=self.STEP).astype(float)
        means = patches.mean(axis=1, keepdims=True)
        patches -= means
        found, squares = np.zeros_like(patches), np.sum(patches**2, axis=1)
        tol = SIDE**2 * (strength * sigma) ** 2
        coded = squares > tol
        codes = orthogonal_mp_gram(
            self.atoms @ self.atoms.T, self.atoms @ patches[coded].T, tol=tol, norms_squared=squares[coded]
        )
        found[coded] = codes.T @ self.atoms
        sums, counts = overlaid(found + means, padded.shape, step=self.STEP)
        # The weight of the noisy image is as in the paper.
        share = 30 / sigma / SIDE**2 * self.STEP**2
        return ((sums + share * padded) / (counts + share))[: noisy.shape[0], : noisy.shape[1]]


class FieldOfExperts:
    r"""Field of experts: responses of cosine filters of 5 x 5 pixels have heavy-tailed potentials.

    .. math::
        \min_x \frac{1}{2 \sigma^2} \|x - y\|^2
        + s \sum_{P, i, k} \alpha_{ik} \log \Big( 1 + \frac{(f_i^\top x_P)^2}{2 c_k^2} \Big)

    The weights :math:`\alpha \ge 0` are fitted by score matching, which is quadratic in them. S. Roth and M. J. Black.
    Fields of Experts. IJCV 82, 2009; A. Hyvarinen. Estimation of Non-Normalized Statistical Models by Score Matching.
    JMLR 6, 2005.
    """

    SIDE = 5
    SCALES = (1.0, 4.0, 16.0)

    def __init__(self, images):
        images = images[:: max(1, len(images) // 15)]
        one = scipy.fft.dct(np.eye(self.SIDE), axis=0, norm="ortho")
        self.filters = np.kron(one, one)[1:].astype(np.float32)
        n = len(self.filters) * len(self.SCALES)
        products, curvatures, n_pixels = np.zeros((n, n)), np.zeros(n), 0
        for image in images:
            responses = patches_of(image, self.SIDE) @ self.filters.T
            inner = (slice(self.SIDE, -self.SIDE),) * 2
            forces = []
            for scale in self.SCALES:
                slopes = 2 * responses / (2 * scale**2 + responses**2)
                for i, own in enumerate(self.filters):
                    part = slopes[:, i : i + 1] * own
                    forces.append(overlaid(part, image.shape, self.SIDE)[0][inner].ravel())
                bends = 2 * (2 * scale**2 - responses**2) / (2 * scale**2 + responses**2) ** 2
                start = len(forces) - len(self.filters)
                curvatures[start : len(forces)] += bends.mean(axis=0) * forces[0].size
            forces = np.stack(forces, axis=1).astype(float)
            products += forces.T @ forces
            n_pixels += len(forces)
        root = np.linalg.cholesky(products / n_pixels + 1e-9 * np.eye(n))
        self.alpha = nnls(root.T, np.linalg.solve(root, curvatures / n_pixels))[0].reshape(len(self.SCALES), -1)

    def __call__(self, noisy, sigma, strength=1.0):
        shape = noisy.shape

        def energy(x):
            x = x.reshape(shape).astype(np.float32)
            responses = patches_of(x, self.SIDE) @ self.filters.T
            squares = responses**2
            value, slopes = 0.0, np.zeros_like(responses)
            for scale, alpha in zip(self.SCALES, self.alpha, strict=True):
                value += float(np.log1p(squares / (2 * scale**2)).sum(axis=0, dtype=float) @ alpha)
                slopes += alpha.astype(np.float32) * 2 * responses / (2 * scale**2 + squares)
            pull = overlaid(slopes @ self.filters, shape, self.SIDE)[0]
            rest = x - noisy
            value = strength * value + 0.5 * float(np.sum(rest.astype(float) ** 2)) / sigma**2
            return value, (strength * pull + rest / sigma**2).ravel().astype(float)

        found = minimize(energy, noisy.ravel().astype(float), jac=True, method="L-BFGS-B", options={"maxiter": 40})
        return found.x.reshape(shape).astype(np.float32)
