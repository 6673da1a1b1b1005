"""Plain networks: the shapes they take, and their widths."""

import torch

from quietnn.tasks.models.plain import DigitsMLP, PlainCNN


def test_the_convolutional_network_takes_images_of_any_size() -> None:
    model = PlainCNN((2, 3, 4), num_classes=5).eval()
    assert model(torch.rand(2, 3, 32, 32)).shape == model(torch.rand(2, 3, 16, 16)).shape == (2, 5)
    assert model.linear.in_features == 4


def test_the_perceptron_takes_digits() -> None:
    assert DigitsMLP(width=8).eval()(torch.rand(3, 1, 8, 8)).shape == (3, 10)
