"""Channels for fields that read a noisy image and the images that other denoisers, called experts, make of it."""

import joblib
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf.preprocessing import AdaptiveFilters, FilterBank, PatchGroups
from support.restoration import TURNS, default_filters, mean_of_mirrors, mirrored

# Shares of an expert's image in its mixtures with the noisy image, which adaptive filters read. From a mixture that
# contains noise, filters can restore detail that the expert has removed.
SHARES = (0.8, 1.0)

# Widths of the Gaussians that smooth squares of the differences between a noisy image and an expert's image
WIDTHS = (1.0, 2.0, 4.0)


class BesideExperts:
    """Channels of noisy images and their experts' images.

    Channels are the default filters of the noisy image, Gaussian derivatives of experts' images, and mixtures of both
    restored by adaptive filters. The filters for a training image were learned from the other half of the training
    images. They are kept in a folder. With ``has_rests``, trees also read the local strength of the noise that the
    first expert has removed.
    """

    # noisy, clean: training images, lists of (H, W); experts: lists of (H, W) by name

    def __init__(self, sigma, noisy, experts, clean, folder, shares=SHARES, has_rests=False):
        self.names, self.shares, self.has_rests = list(experts), shares, has_rests
        one = [np.zeros((8, 8, 1))]
        groups = PatchGroups(sigma, search_radius=12, step=8)
        self.of_noisy = default_filters(sigma, [groups]).fit(one)
        self.of_experts = FilterBank("gaussian_derivatives").fit([np.zeros((8, 8, len(experts)))])
        self.filters, self._of_training = [], []
        for name in self.names:
            key = f"{name.replace(' ', '_')}_{sigma}_{len(noisy)}_{len(shares)}"
            path = folder / f"filters_{key}.joblib"
            if not path.exists():
                filters = [AdaptiveFilters(radius=3) for _ in shares]
                mixtures = zip(filters, _mixtures(noisy, experts[name], self.shares), strict=True)
                joblib.dump((filters, [own.fit_transform(images, clean) for own, images in mixtures]), path)
            filters, restored = joblib.load(path)
            self.filters += filters
            self._of_training += restored

    def channels(self, noisy, experts):
        """Return the channels of images."""
        mixtures = [images for name in self.names for images in _mixtures(noisy, experts[name], self.shares)]
        adaptive = [own.transform(images) for own, images in zip(self.filters, mixtures, strict=True)]
        return self._joined(noisy, experts, adaptive)

    def of_training(self, noisy, experts):
        """Return the channels of the training images."""
        return self._joined(noisy, experts, self._of_training)

    def _joined(self, noisy, experts, adaptive):
        beside = [np.dstack(own) for own in zip(*(experts[name] for name in self.names), strict=True)]
        parts = [self.of_noisy.transform(noisy), self.of_experts.transform(beside), *adaptive]
        if self.has_rests:
            parts.append([_rests(*own) for own in zip(noisy, experts[self.names[0]], strict=True)])
        return [np.concatenate(own, axis=2, dtype=np.float32) for own in zip(*parts, strict=True)]

    def of_pairs(self):
        """Return the indices of channels that linear models of pairs read: images, but no derivatives of images."""
        names = [*self.of_noisy.get_feature_names_out(), *self.of_experts.get_feature_names_out()]
        n_channels = len(names) + 2 * len(self.filters)
        return [k for k in range(n_channels) if k >= len(names) or "derivative" not in names[k]]

    def restored(self, fields, noisy, experts, turns=TURNS):
        """Yield restored images, each the mean over all fields and all mirror images."""
        for k, x in enumerate(noisy):
            beside = {name: mirrored(images[k], turns) for name, images in experts.items()}
            channels = self.channels(mirrored(x, turns), beside)
            yield np.mean([mean_of_mirrors(field.predict(channels), turns) for field in fields], axis=0)


def _rests(noisy, denoised):
    """Return the difference of a noisy and a denoised image, smoothed, and roots of its smoothed squares."""
    rest = noisy - denoised
    squares = [np.sqrt(gaussian_filter(rest**2, width)) for width in WIDTHS]
    return np.dstack([gaussian_filter(rest, WIDTHS[0]), *squares])


def _mixtures(noisy, images, shares):
    """Yield, for each share, the mixtures of noisy images and an expert's images."""
    for share in shares:
        yield [share * own + (1 - share) * x for own, x in zip(images, noisy, strict=True)]
