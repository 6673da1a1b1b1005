"""The same memories through aihwkit's own noise models, for those who have it.

Only its models in torch are used, not its compiled tiles. Install it with `pip install --no-deps aihwkit==1.1.0`: its
declared dependencies pull in torchvision and a compiler's tools, none of which these models need.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quietnn.channels.conductance import Draws, Memory
from quietnn.channels.memories import PCM, ReRAM
from quietnn.channels.randomness import global_randomness, key_of
from quietnn.errors import MissingData, unknown_choice

KINDS = ("pcm", "reram")


@dataclass(frozen=True)
class AihwkitMemory(Memory):
    """Memory as aihwkit models it; gain and noise are predicted by the built-in model of the same publication.

    Torch's global randomness, which it draws from, is left as it was.

    Attributes:
        kind: `"pcm"` or `"reram"`.
        seconds: since the first reading (pcm) or writing (reram).
        compensate: global drift compensation, one factor for each tensor.
    """

    kind: str = "pcm"
    seconds: float = 1.0
    compensate: bool = False

    def __post_init__(self) -> None:
        """Refuse an unknown memory, and times that the built-in model refuses."""
        if self.kind not in KINDS:
            raise unknown_choice("kind", self.kind, KINDS)
        self.built_in  # noqa: B018

    @property
    def built_in(self) -> PCM | ReRAM:
        """The model here that agrees with it."""
        return PCM(self.seconds) if self.kind == "pcm" else ReRAM(self.seconds)

    def write(self, target: Tensor, draws: Draws) -> Tensor:
        model = self._model()
        with global_randomness():
            torch.manual_seed(key_of(draws.seed, f"{draws.name}:write") % 2**63)
            written: Tensor = model.apply_programming_noise_to_conductance(target * model.g_max) / model.g_max
        return written

    def read(self, target: Tensor, written: Tensor, draws: Draws) -> Tensor:
        if self.kind == "reram" and self.seconds == 1.0:
            return written
        model = self._model()
        with global_randomness():
            torch.manual_seed(key_of(draws.seed, f"{draws.name}:read") % 2**63)
            parameters = model.generate_drift_coefficients(target * model.g_max)
            drifted = model.apply_drift_noise_to_conductance(written * model.g_max, parameters, self.seconds)
        read: Tensor = drifted / model.g_max
        return read

    def moments(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and second moment of what is read, by the built-in model."""
        return self.built_in.moments(target)

    def _model(self) -> Any:
        try:
            from aihwkit.inference.noise.pcm import PCMLikeNoiseModel
            from aihwkit.inference.noise.reram import ReRamWan2022NoiseModel
        except ImportError as error:
            raise MissingData(
                f"aihwkit cannot be imported ({error}); pip install --no-deps aihwkit==1.1.0, "
                f"or use the built-in channel {self.kind!r}, which models the same publication"
            ) from error
        kind = PCMLikeNoiseModel if self.kind == "pcm" else ReRamWan2022NoiseModel
        return kind(g_max=self.built_in.largest)
