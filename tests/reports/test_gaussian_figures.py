"""Weights and errors of channels beside a Gaussian."""

import numpy as np
import pytest

from quietnn.errors import QuietnnError
from quietnn.reports.gaussian_figures import density_figure, quantile_figure, weights_figure


def test_the_density_of_the_weights_sums_to_one_and_noise_adds_two_curves() -> None:
    (axes,) = weights_figure([1, 2, 1], (-1.5, 1.5), 0.0, 1.0).axes
    assert axes.patches[0].get_data().values.sum() == pytest.approx(1.0)
    assert [line.get_label() for line in axes.lines] == ["Gaussian of the same variance"]
    (axes,) = weights_figure([1, 2, 1], (-1.5, 1.5), 0.0, 1.0, noise_variance=0.25).axes
    clean = axes.lines[-1]
    assert clean.get_label() == "clean weights, estimated"
    middle = np.interp(0.0, clean.get_xdata(), clean.get_ydata())
    assert middle == pytest.approx(np.interp(0.0, [-0.5, 0.5], [np.exp(-1 / 6) / np.sqrt(1.5 * np.pi)] * 2))


def test_a_panel_for_each_channel_and_none_for_single_tensors() -> None:
    found = [
        {"channel": f"quantise:num_bits={bits}", "layer": layer, "excess_kurtosis": 1.25}
        | {"histogram": [0.25, 0.5, 0.25], "quantiles": [-1.0, 0.0, 1.0]}
        for bits in (2, 3)
        for layer in ("", "conv1")
    ]
    densities = density_figure(found, reach=6.0).axes
    assert [axes.get_title() for axes in densities] == [f"quantise:\nnum_bits={bits}\nkurtosis +1.2" for bits in (2, 3)]
    quantiles = quantile_figure(found, probabilities=(0.1, 0.5, 0.9)).axes
    assert quantiles[0].lines[0].get_ydata().tolist() == [-1.0, 0.0, 1.0]


def test_without_records_there_is_no_figure() -> None:
    with pytest.raises(QuietnnError, match="quietnn channels"):
        density_figure([], reach=6.0)
    with pytest.raises(QuietnnError, match="quietnn channels"):
        quantile_figure([], probabilities=(0.5,))
