"""White noise with chosen tensors sent several times."""

from dataclasses import dataclass

from torch import Tensor

from quietnn.channels.awgn import AWGN
from quietnn.channels.base import Channel
from quietnn.channels.repetition import Repetition
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation
from quietnn.weights import Weights


@dataclass(frozen=True)
class Protected:
    """White noise with chosen tensors sent several times, see `Repetition`.

    Attributes:
        wnr_db: of what is sent once.
        names: patterns of the protected tensors' names, with `|` between them.
        copies: how often those are sent.
    """

    wnr_db: float
    names: str = "conv1.*|fc.*|linear.*|head.*|classifier.*"
    copies: int = 4

    def __post_init__(self) -> None:
        """Refuse a ratio that is none, and less than one copy."""
        _ = self.channel

    @property
    def channel(self) -> Repetition:
        """The link itself."""
        return Repetition(AWGN(wnr_db=self.wnr_db), dict.fromkeys(self.names.split("|"), self.copies))

    def transmit(self, weights: Weights, *, seed: int) -> Observation[dict[str, Tensor], NoiseVariance]:
        """The weights, some of them with less noise."""
        return self.channel.transmit(weights, seed=seed)

    def settled(self, weights: Weights) -> Channel:
        """The link with its noise set by all weights, which sends every tensor by itself."""
        return self.channel.settled(weights)

    def rate(self, weights: Weights) -> float:
        """Channel uses a weight, over those of sending everything once."""
        return self.channel.rate(weights)
