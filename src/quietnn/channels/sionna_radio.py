"""Weights over OFDM through Sionna's channels, for those who have it (Sionna 2, `pip install quietnn[wireless]`).

Sionna lays out the grid of a slot, draws its channel and applies it. The receiver averages the two pilots of a
subcarrier, smooths them over the subcarriers with the Wiener filter of the channel's frequency covariance `R`, and
divides (docs/reference/channels.md tells what is modelled and what is not):

    h' = R (R + e I)^-1 h_ls       e = N_0 / 2       error variance  q = diag(R - R (R + e I)^-1 R)
    y / h' = x + (g x + n) / h'                      noise variance of a symbol  (N_0 + p q) / |h'|^2
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from quietnn.channels.base import check_link_db, check_number
from quietnn.channels.radio import Link
from quietnn.channels.randomness import global_randomness, key_of
from quietnn.errors import MissingData, unknown_choice
from quietnn.units import db_to_ratio

PROFILES = ("awgn", "rayleigh", "tdl-a", "tdl-b", "tdl-c", "tdl-d", "tdl-e")

_NUM_SYMBOLS = 14
_PILOTS = (2, 11)
_SUBCARRIERS = 72
_SPACING = 30e3
_CARRIER = 3.5e9
_DELAYS = 1e-12, 1e-5


@dataclass(frozen=True)
class SionnaRadio(Link):
    """An OFDM link with pilots, channel estimation and equalisation.

    Attributes:
        wnr_db: mean signal-to-noise ratio of the link, which is the WNR it would have without fading.
        profile: one of `PROFILES`.
        delay_spread: root mean square delay of the tapped delay lines, in seconds.
    """

    wnr_db: float
    profile: str = "tdl-c"
    delay_spread: float = 100e-9

    def __post_init__(self) -> None:
        """Refuse a ratio that is none, an unknown profile, and delays that are not seconds."""
        check_link_db(self.wnr_db)
        if self.profile not in PROFILES:
            raise unknown_choice("profile", self.profile, PROFILES)
        check_number("delay_spread", self.delay_spread, *_DELAYS, note=" seconds, for example 1e-7")

    def carry(self, symbols: Tensor, power: float, *, seed: int, name: str) -> tuple[Tensor, Tensor]:
        """The equalised symbols of a tensor and their noise variances; the global seeds are left as they were."""
        with torch.no_grad(), global_randomness():
            link = _link(self.profile, self.delay_spread)
            with link.seeded(key_of(seed, name) % 2**63):
                return link(symbols, 1.0 / db_to_ratio(self.wnr_db), power)

    def num_uses(self, num_symbols: int) -> int:
        """Complex channel uses of a tensor, pilots and the unused end of its last slot included."""
        num_slots = math.ceil(num_symbols / (_SUBCARRIERS * (_NUM_SYMBOLS - len(_PILOTS))))
        return num_slots * _SUBCARRIERS * _NUM_SYMBOLS


class _Link:
    """Sionna's blocks for one profile; building them takes a second, so they are kept."""

    def __init__(self, profile: str, delay_spread: float) -> None:
        try:
            from sionna.phy import config
            from sionna.phy.channel import AWGN, OFDMChannel, RayleighBlockFading
            from sionna.phy.channel.tr38901 import TDL
            from sionna.phy.ofdm import ResourceGrid, ResourceGridMapper, tdl_freq_cov_mat
        except ImportError as error:
            raise MissingData(
                f"Sionna 2 cannot be imported ({error}); pip install sionna-no-rt, or use the built-in channel 'fading'"
            ) from error
        self._config: Any = config
        # Pilots are random symbols, drawn with the grid: unseeded, every process would have its own.
        with global_randomness(), self.seeded(0):
            grid = ResourceGrid(
                _NUM_SYMBOLS, _SUBCARRIERS, _SPACING, pilot_pattern="kronecker", pilot_ofdm_symbol_indices=list(_PILOTS)
            )
        self._map = ResourceGridMapper(grid)
        kinds = grid.build_type_grid().flatten()
        self._data, self._pilots = (torch.nonzero(kinds == kind).squeeze(-1) for kind in (0, 1))
        self._covariance: Tensor | None = None
        self._channel: Any = AWGN()
        if profile == "rayleigh":
            self._channel = OFDMChannel(RayleighBlockFading(1, 1, 1, 1), grid)
            self._covariance = torch.ones(_SUBCARRIERS, _SUBCARRIERS, dtype=torch.complex128)
        elif profile != "awgn":
            model = profile[-1].upper()
            self._channel = OFDMChannel(TDL(model, delay_spread, _CARRIER), grid)
            covariance: Tensor = tdl_freq_cov_mat(model, _SPACING, _SUBCARRIERS, delay_spread)
            self._covariance = covariance.to(torch.complex128)

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Lend Sionna's global seed."""
        before = self._config.seed
        self._config.seed = seed
        try:
            yield
        finally:
            self._config.seed = before

    def __call__(self, symbols: Tensor, spread: float, power: float) -> tuple[Tensor, Tensor]:
        """The equalised symbols and the noise variance of each."""
        num_slots = math.ceil(len(symbols) / len(self._data))
        padded = symbols.new_zeros(num_slots * len(self._data))
        padded[: len(symbols)] = symbols
        sent = self._map(padded.view(num_slots, 1, 1, -1))
        heard = self._channel(sent, torch.tensor(spread)).view(num_slots, -1)
        if self._covariance is None:
            arrived = heard[:, self._data]
            variance = torch.full(arrived.shape, spread, dtype=torch.float64)
        else:
            estimate, doubt = self._estimate(heard, sent.view(num_slots, -1), spread)
            column = self._data % _SUBCARRIERS
            arrived = heard[:, self._data] / estimate[:, column]
            variance = (spread + power * doubt[column]) / estimate[:, column].abs().double().square()
        return arrived.flatten()[: len(symbols)], variance.flatten()[: len(symbols)]

    def _estimate(self, heard: Tensor, sent: Tensor, spread: float) -> tuple[Tensor, Tensor]:
        """The channel of every slot and subcarrier, and its error variance by subcarrier."""
        assert self._covariance is not None
        ratio = heard[:, self._pilots] * sent[:, self._pilots].conj() / sent[:, self._pilots].abs().square()
        least_squares = ratio.view(len(heard), len(_PILOTS), _SUBCARRIERS).mean(dim=1)
        power = sent[0, self._pilots].abs().square().mean().item()
        error = spread / (len(_PILOTS) * power)
        covariance = self._covariance
        identity = torch.eye(_SUBCARRIERS, dtype=covariance.dtype)
        smoother = torch.linalg.solve(covariance + error * identity, covariance.mH).mH
        doubt = (covariance - smoother @ covariance).diagonal().real.clamp(min=0.0)
        return (least_squares.to(covariance.dtype) @ smoother.mT).to(heard.dtype), doubt


_link = lru_cache(maxsize=8)(_Link)
