"""Train a network through a field. The gradient of the field flows into the network."""

import numpy as np
import torch

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import AutoMarginals
from sklearn_crf.models import PairwiseModel
from sklearn_crf.objectives import loss_and_gradient

GRAPH = lattice((30,))  # a chain of 30 steps


class FieldLoss(torch.autograd.Function):
    """Negative log-likelihood, for scores (N, K) of nodes and (K, K) of pairs."""

    @staticmethod
    def forward(ctx, unary, table, labels):
        scores = unary.detach().numpy(), table.detach().numpy()[None]
        loss, gradient = loss_and_gradient(PairwiseModel(GRAPH, *scores), labels)
        ctx.slopes = gradient.unary, gradient.tables.reshape(table.shape)
        return unary.new_tensor(loss)

    @staticmethod
    def backward(ctx, slope):
        return *(slope * slope.new_tensor(s) for s in ctx.slopes), None


def train(with_field):
    torch.manual_seed(0)
    layers = (
        torch.nn.Conv1d(1, 16, 5, padding=2),
        torch.nn.ReLU(),
        torch.nn.Conv1d(16, 3, 1),
    )
    network = torch.nn.Sequential(*layers)
    table = torch.zeros(3, 3, requires_grad=True)
    optimizer = torch.optim.Adam(
        [*network.parameters(), table], lr=0.02, weight_decay=1e-3
    )
    for _ in range(60):
        optimizer.zero_grad()
        scores = network(X[:50]).transpose(1, 2)
        if with_field:
            loss = sum(
                FieldLoss.apply(s, table, labels)
                for s, labels in zip(scores, y, strict=False)
            )
        else:
            loss = torch.nn.functional.cross_entropy(
                scores.transpose(1, 2), torch.tensor(y[:50])
            )
        loss.backward()
        optimizer.step()
    return network(X[50:]).transpose(1, 2).detach().numpy(), table.detach().numpy()[
        None
    ]


rng = np.random.default_rng(0)
starts, lengths = rng.integers(3, size=(200, 1)), rng.integers(3, 8, size=(200, 1))
y = (starts + np.arange(30) // lengths) % 3  # three phases that take turns
X = torch.tensor(y + rng.normal(size=y.shape), dtype=torch.float32)[:, None]

scores, _ = train(with_field=False)
print(
    f"network: {np.mean(scores.argmax(axis=-1) == y[50:]):.3f} of the steps are right"
)
scores, table = train(with_field=True)
proba = [
    AutoMarginals().marginals(PairwiseModel(GRAPH, s, table)).unary for s in scores
]
print(f"network and field: {np.mean(np.argmax(proba, axis=-1) == y[50:]):.3f}")
