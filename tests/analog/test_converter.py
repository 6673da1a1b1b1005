"""Converters and their presets."""

import pytest

from quietnn.analog.converter import PRESETS, Converter
from quietnn.errors import InvalidConfig


@pytest.mark.parametrize(("bits", "step"), [(8, 20 / 254), (2, 10.0), (0, 0.0)])
def test_the_step_of_the_output_grid(bits: int, step: float) -> None:
    assert Converter(output_bits=bits).output_step == pytest.approx(step)


def test_the_variance_of_an_output_is_noise_and_rounding() -> None:
    assert Converter(output_noise=0.5, output_bits=0).output_variance == 0.25
    assert Converter(output_noise=0.0).output_variance == pytest.approx((20 / 254) ** 2 / 12)


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"input_bits": 1}, "input_bits is 1"), ({"output_noise": -1.0}, "output_noise"), ({"tile": 0.5}, "tile")],
)
def test_numbers_that_no_converter_has(settings: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        Converter(**settings)  # type: ignore[arg-type]


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidConfig, match="8-bit"):
        Converter.named("8bit")


@pytest.mark.analog
@pytest.mark.parametrize(
    ("name", "theirs"),
    [("8-bit", "StandardIOParameters"), ("7-9-bit-devices", "PresetIOParameters"), ("7-9-bit", "IOParameters")],
)
def test_presets_have_the_numbers_of_aihwkit(name: str, theirs: str) -> None:
    from aihwkit.simulator.parameters import IOParameters
    from aihwkit.simulator.presets import utils

    kind = IOParameters if theirs == "IOParameters" else getattr(utils, theirs)
    known, ours = kind(), PRESETS[name]
    assert ours.input_step == pytest.approx(2 * known.inp_res)
    assert ours.output_step == pytest.approx(2 * known.out_res * known.out_bound)
    assert (ours.output_range, ours.output_noise) == (known.out_bound, known.out_noise)


@pytest.mark.analog
def test_the_preset_with_read_noise_has_the_numbers_of_aihwkit() -> None:
    from aihwkit.simulator.presets.inference import StandardHWATrainingPreset

    config, ours = StandardHWATrainingPreset(), PRESETS["8-bit-read-noise"]
    known = config.forward
    assert ours.input_step == pytest.approx(2 / known.inp_res)
    assert ours.output_step == pytest.approx(2 * known.out_bound / known.out_res)
    assert (ours.output_noise, ours.read_noise) == (known.out_noise, known.w_noise)
    assert (ours.tile, ours.input_range) == (config.mapping.max_input_size, config.pre_post.input_range.init_value)
