"""What stands between digital numbers and an analog array: converters of inputs and outputs, and their noise.

An array computes in its own units. An input of 1 is the end of the input converter, and a weight of 1 is the largest
of its column. With `q` rounding to a grid that ends at the range of a converter,

    x' = q_in(x / input_range)
    y' = q_out(W' x' + output_noise n + read_noise sqrt(|W'| x'^2) n'),    n, n' standard normal, fresh on every call

and the digital side multiplies `y'` by the input range and by what a weight of 1 stands for. The numbers and the grid,
`2^bits - 2` steps from end to end, are those of aihwkit (Rasch et al., AICAS 2021; Nature Communications 2023).
"""

from dataclasses import dataclass

from quietnn.channels.base import check_number, check_whole
from quietnn.errors import unknown_choice

_MOST_BITS = 24
"""As many as float32 tells apart."""
_LARGEST = 1e6
_WIDEST_TILE = 2**20


@dataclass(frozen=True)
class Converter:
    """The converters and the noise of an analog array, in units of the array.

    Attributes:
        input_bits: of the converter in front of the array; 0 rounds nothing.
        output_bits: of the converter behind it; 0 rounds nothing.
        input_range: the largest input of a layer whose range is not calibrated; 0 clips and rounds nothing.
        output_range: the largest output: so many inputs of 1 on weights of 1. 0 clips and rounds nothing.
        output_noise: standard deviation of the noise of every output.
        read_noise: of a weight of 1 at an input of 1, in standard deviations; its variance grows with the weight.
        tile: inputs that share an array; a layer with more is cut into equal arrays, each with converters of its own.

    >>> Converter(output_noise=0.0).output_step
    0.07874015748031496
    """

    input_bits: int = 8
    output_bits: int = 8
    input_range: float = 3.0
    output_range: float = 10.0
    output_noise: float = 0.04
    read_noise: float = 0.0
    tile: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that no converter has."""
        for name in ("input_bits", "output_bits"):
            check_whole(name, getattr(self, name), 0, _MOST_BITS)
            if getattr(self, name) == 1:
                check_whole(name, 1, 2, _MOST_BITS)
        for name in ("input_range", "output_range", "output_noise", "read_noise"):
            check_number(name, getattr(self, name), 0, _LARGEST)
        check_whole("tile", self.tile, 0, _WIDEST_TILE)

    @classmethod
    def named(cls, name: str) -> "Converter":
        """One of `PRESETS`.

        >>> Converter.named("8-bit").output_noise
        0.04
        """
        if name not in PRESETS:
            raise unknown_choice("converter", name, PRESETS)
        return PRESETS[name]

    @property
    def input_step(self) -> float:
        """The step of the input grid in units of the input range."""
        return 2.0 / (2**self.input_bits - 2) if self.input_bits else 0.0

    @property
    def output_step(self) -> float:
        """The step of the output grid in units of the array."""
        return 2.0 * self.output_range / (2**self.output_bits - 2) if self.output_bits else 0.0

    @property
    def output_variance(self) -> float:
        """Of one array's output: its noise, and the error of rounding it, which is spread evenly over a step."""
        return self.output_noise**2 + self.output_step**2 / 12

    def num_tiles(self, num_inputs: int) -> int:
        """The arrays that a layer with so many inputs takes.

        >>> Converter(tile=512).num_tiles(576)
        2
        """
        return -(-num_inputs // self.tile) if self.tile else 1


PRESETS = {
    "8-bit": Converter(),
    "8-bit-read-noise": Converter(read_noise=0.0175, tile=512),
    "7-9-bit": Converter(input_bits=7, output_bits=9, output_range=12.0, output_noise=0.06),
    "7-9-bit-devices": Converter(input_bits=7, output_bits=9, output_range=20.0, output_noise=0.1),
}
"""Converters by name, with the numbers of aihwkit 1.1.0: `StandardIOParameters`, `StandardHWATrainingPreset` (without
its voltage drop), `IOParameters` and `PresetIOParameters`. Input ranges are fixed by layer, as on a chip."""
