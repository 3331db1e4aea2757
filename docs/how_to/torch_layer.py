"""Train a convolution on handwritten digits through a field over their sequence."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from sklearn_crf import TRWCRF
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import AutoMarginals
from sklearn_crf.models import PairwiseModel
from sklearn_crf.objectives import loss_and_gradient


class FieldLoss(torch.autograd.Function):
    """Negative log-likelihood, for scores (N, K) of nodes and (K, K) of pairs."""

    @staticmethod
    def forward(ctx, unary, table, labels):
        model = chain(unary.detach().numpy(), table.detach().numpy())
        loss, gradient = loss_and_gradient(model, labels)
        ctx.slopes = gradient.unary, gradient.tables.reshape(table.shape)
        return unary.new_tensor(loss)

    @staticmethod
    def backward(ctx, slope):
        return *(slope * slope.new_tensor(s) for s in ctx.slopes), None


def chain(unary, table):
    """Return the model of a sequence with scores (N, K) and (K, K)."""
    return PairwiseModel(lattice((len(unary),)), unary, table[None])


def train(with_field):
    """Train a network, and a table of scores of neighbours if there is a field."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 10),
    )

    def scores_of(images):
        return network(images.flatten(0, 1)).unflatten(0, images.shape[:2])

    table = torch.zeros(10, 10, requires_grad=True)
    groups = [{"params": network.parameters()}, {"params": [table], "lr": 0.1}]
    optimizer = torch.optim.Adam(groups, lr=0.01, weight_decay=1e-3)
    for _ in range(40):
        optimizer.zero_grad()
        scores = scores_of(X[:100])
        if with_field:
            pairs = zip(scores, y[:100], strict=True)
            loss = sum(FieldLoss.apply(s, table, labels) for s, labels in pairs)
        else:
            flat = torch.tensor(y[:100].ravel())
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), flat)
        loss.backward()
        optimizer.step()
    return scores_of(X).detach().numpy(), table.detach().numpy()


# Sequences of twelve digits, of which each mostly follows the digit before it.
rng = np.random.default_rng(0)
images, digits = load_digits(return_X_y=True)
steps = np.where(rng.random((200, 12)) < 0.8, 1, rng.integers(10, size=(200, 12)))
y = np.cumsum(steps, axis=1) % 10
# Sequences to predict show other images than sequences to train.
places = [np.flatnonzero(digits[:900] == k) for k in range(10)]
others = [np.flatnonzero(digits[900:] == k) + 900 for k in range(10)]
shown = [[rng.choice(places[k]) for k in labels] for labels in y[:100]]
shown += [[rng.choice(others[k]) for k in labels] for labels in y[100:]]
X = images[shown] / 16 + 0.6 * rng.normal(size=(200, 12, 64))
X = torch.tensor(X, dtype=torch.float32).reshape(200, 12, 1, 8, 8)

scores, _ = train(with_field=False)
right = np.mean(scores[100:].argmax(axis=-1) == y[100:])
field = TRWCRF().fit(scores[:100], y[:100])
print(f"network alone: {right:.3f} of the digits are right")
print(f"field trained after the network: {field.score(scores[100:], y[100:]):.3f}")
scores, table = train(with_field=True)
proba = [AutoMarginals().marginals(chain(s, table)).unary for s in scores[100:]]
right = np.mean(np.argmax(proba, axis=-1) == y[100:])
print(f"network trained through the field: {right:.3f}")
