"""Training with noise on the weights, so that they learn to bear it: the baseline that needs retraining.

Every step sees the weights through a fresh draw of the channel, `r = w + z` at a given WNR, and moves the clean
weights by the gradient at the noisy ones (Zhou et al. 2020, "Noisy machines"; Jankowski et al. 2022, "AirNet").
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from quietnn.tasks.base import Inputs
from quietnn.units import db_to_ratio
from quietnn.weights import WeightStatistics, noisy_names


def noisy_logits(model: nn.Module, inputs: Inputs, *, wnr_db: float) -> Tensor:
    """Logits of the model with noise on its weights; gradients reach the clean weights."""
    names = set(noisy_names(model))
    weights = {name: parameter for name, parameter in model.named_parameters() if name in names}
    std = (WeightStatistics.from_clean(weights.values()).variance / db_to_ratio(wnr_db)) ** 0.5
    noisy = {name: weight + std * torch.randn_like(weight) for name, weight in weights.items()}
    arguments = ((), inputs) if isinstance(inputs, dict) else ((inputs,), {})
    output = functional_call(model, noisy, *arguments)
    logits: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits
