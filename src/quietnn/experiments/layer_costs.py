"""Which layers to protect: what noise on one layer alone costs, measured on examples that are not test data.

    cost of a weight of layer l = mean over draws of  (loss(w + z on l alone) - loss(w)) / N_l

at the noise variance that the whole model has at a WNR. Sending a layer `n` times saves about `(1 - 1 / n)` of what its
noise costs for `(n - 1) N_l` channel uses, if costs add up: the cost of a weight says where uses are best spent.
"""

from collections.abc import Sequence

from torch import nn

from quietnn.channels.awgn import AWGN
from quietnn.channels.transmit import transmit
from quietnn.targets import noisy_weights
from quietnn.tasks.base import Examples, Task
from quietnn.weights import layerwise


def layer_costs(
    task: Task, model: nn.Module, examples: Examples, *, wnr_db: float, seeds: Sequence[int] = range(3)
) -> dict[str, float]:
    """The loss that noise on each layer costs, over the layer's weights, the costliest first.

    Args:
        task: evaluates the model.
        model: with clean weights; left as it is.
        examples: tuning examples.
        wnr_db: of the whole model, which sets the noise of every layer.
        seeds: of the noise draws.
    """
    weights = noisy_weights(model)
    noise = AWGN(wnr_db=wnr_db).variance_for(weights)
    clean = task.evaluate(model, examples).loss
    costs: dict[str, float] = {}
    for layer, names in layerwise(weights).items():
        losses = [
            task.evaluate(transmit(model, noise_variance=noise, seed=seed, noisy=names).received, examples).loss
            for seed in seeds
        ]
        count = sum(weights[name].numel() for name in names)
        costs[layer] = (sum(losses) / len(losses) - clean) / count
    return dict(sorted(costs.items(), key=lambda item: -item[1]))
