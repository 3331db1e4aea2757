"""A noisy signal, the mean of a Gaussian chain, and draws from it."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ConjugateGradient, GaussianDirect
from sklearn_crf.models import GaussianModel

rng = np.random.default_rng(0)
signal = np.sin(np.linspace(0, 6, 80))
noisy = signal + rng.normal(scale=0.4, size=80)
chain = lattice((80,))
model = GaussianModel(chain, h=6 * noisy, diagonal=6.0 + 40.0 * chain.degree, blocks=[-40.0])
for number, draw in enumerate(GaussianDirect().sample(model, 8, random_state=0)):
    plt.plot(draw.ravel(), color="C0", alpha=0.25, label="draws" if number == 0 else None)
plt.plot(noisy, ".", color="0.5", label="noisy values")
plt.plot(ConjugateGradient().marginals(model).mean.ravel(), color="C1", linewidth=2, label="mean")
plt.legend()
