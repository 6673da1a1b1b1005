"""A caller in inference mode gets what any other caller gets."""

import torch
from torch import nn

from quietnn import auto, transmit


def test_auto_chooses_the_same_with_and_without_labels() -> None:
    torch.manual_seed(0)
    labels = torch.arange(24) % 3
    inputs = torch.randn(24, 4) + 2 * nn.functional.one_hot(labels, 4)
    network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    received = transmit(network, wnr_db=0.0, seed=0)
    for own in (None, labels):
        expected = auto(received.received, noise_variance=received.noise_variance, inputs=inputs, labels=own)
        with torch.inference_mode():
            found = auto(received.received, noise_variance=received.noise_variance, inputs=inputs, labels=own)
        assert str(found) == str(expected)
