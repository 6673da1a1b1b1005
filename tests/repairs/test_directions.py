"""MMSE along the directions that inputs take."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import quietnn
from quietnn.errors import InvalidConfig, InvalidWeights
from quietnn.evidence import Evidence
from quietnn.repairs.directions import _SecondMoments, along, denoise_directions
from quietnn.repairs.front import repair


def _planted(num_rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Clean weights with power along a few of the directions of their inputs, noisy ones, and the directions."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.linalg.qr(torch.randn(32, 32, generator=generator))[0]
    power = torch.logspace(0, -2, 32)
    clean = (torch.randn(num_rows, 32, generator=generator) * power) @ directions.T
    return clean, clean + 0.1 * torch.randn(clean.shape, generator=generator), directions


def _error(estimate: Tensor, clean: Tensor) -> float:
    return float((estimate - clean).square().sum())


@pytest.mark.parametrize("seed", range(5))
def test_along_beats_one_factor_for_all_where_directions_differ(seed: int) -> None:
    clean, received, directions = _planted(64, seed)
    estimate = along(received, 0.01, directions)
    one_factor = received * (1 - 0.01 / received.square().mean())
    assert _error(estimate, clean) < 0.8 * _error(one_factor, clean)
    assert _error(one_factor, clean) < _error(received, clean)


def _by_column(received: Tensor, variance: float, directions: Tensor) -> Tensor:
    """The factor of James and Stein alone."""
    turned = received @ directions
    factors = 1 - (len(received) - 2) * variance / turned.square().sum(0)
    return turned * factors.clamp_min(0.0) @ directions.T


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_differ_have_factors_of_their_own(seed: int) -> None:
    clean, _, directions = _planted(64, seed)
    clean = clean * torch.logspace(0.5, -1.5, 64)[:, None]
    received = clean + 0.1 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed + 50))
    by_column = _error(_by_column(received, 0.01, directions), clean)
    assert _error(along(received, 0.01, directions), clean) < 0.8 * by_column


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_do_not_differ_leave_the_factor_of_james_and_stein(seed: int) -> None:
    clean, received, directions = _planted(64, seed)
    by_column = _by_column(received, 0.01, directions)
    estimate = along(received, 0.01, directions)
    assert _error(estimate, by_column) < 0.02 * _error(received, by_column)
    assert _error(estimate, clean) < 1.01 * _error(by_column, clean)


def test_rows_stay_out_where_the_direction_that_matters_does_not_follow_them() -> None:
    """Rows differ in most directions, and in the one that inputs mostly take all are alike."""
    clean, _, directions = _planted(64, 0)
    turned = clean @ directions * torch.logspace(0.5, -1.5, 64)[:, None]
    turned[:, 0] = 0.3
    clean = turned @ directions.T
    received = clean + 0.1 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))
    power = torch.ones(32)
    assert not torch.allclose(along(received, 0.01, directions, power=power), _by_column(received, 0.01, directions))
    power[0] = 100.0
    torch.testing.assert_close(
        along(received, 0.01, directions, power=power), _by_column(received, 0.01, directions), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("num_rows", [1, 2, 3])
@pytest.mark.parametrize("value", [0.0, 1e-12, 1.0, 1e12])
def test_few_rows_of_any_size_stay_finite_and_grow_no_longer(num_rows: int, value: float) -> None:
    received = value * torch.randn(num_rows, 4, generator=torch.Generator().manual_seed(0))
    for noise in (value**2, torch.full((num_rows, 1), 0.5 * value**2)):
        estimate = along(received, noise, torch.eye(4))
        assert bool((estimate.abs() <= received.abs() * 1.0001).all())


def test_weights_without_noise_stay_as_they_are() -> None:
    _, received, directions = _planted(64, 1)
    noise = torch.full_like(received, 0.01)
    noise[::2] = 0.0
    noise[1, :5] = 0.0
    estimate = along(received, noise, directions)
    assert torch.equal(estimate[noise == 0], received[noise == 0])
    assert not torch.isclose(estimate[3::2], received[3::2]).any()


@given(num_rows=st.integers(3, 12), seed=st.integers(0, 2**16), scale=st.floats(0.0, 3.0))
@settings(max_examples=25, deadline=None)
def test_no_clean_weights_are_worse_off_on_average(num_rows: int, seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    clean = scale * torch.randn(num_rows, 3, generator=generator, dtype=torch.float64)
    received = clean + torch.randn(300, num_rows, 3, generator=generator, dtype=torch.float64)
    estimates = torch.stack([along(one, 1.0, torch.eye(3, dtype=torch.float64)) for one in received])
    errors = (estimates - clean).square().sum((1, 2)) - (received - clean).square().sum((1, 2))
    assert float(errors.mean()) < 3 * float(errors.std()) / 300**0.5


def test_equal_noise_a_weight_is_that_of_one_number() -> None:
    _, received, directions = _planted(64, 0)
    each = along(received, torch.full_like(received, 0.01), directions)
    torch.testing.assert_close(each, along(received, 0.01, directions), rtol=0.05, atol=0.01)


def test_rows_with_more_noise_are_held_back_more() -> None:
    clean, _, directions = _planted(64, 1)
    std = torch.where(torch.arange(64) < 32, 0.02, 0.5)[:, None]
    received = clean + std * torch.randn(clean.shape, generator=torch.Generator().manual_seed(3))
    estimate = along(received, std.square().expand_as(received), directions)
    for rows in (slice(32), slice(32, 64)):
        assert _error(estimate[rows], clean[rows]) < _error(received[rows], clean[rows])
    assert _error(estimate, clean) < _error(along(received, float(std.square().mean()), directions), clean)


def test_outputs_may_run_along_the_columns() -> None:
    _, received, directions = _planted(16, 2)
    torch.testing.assert_close(
        along(received.T, 0.01, directions, transposed=True).T, along(received, 0.01, directions)
    )
    by_output = torch.linspace(0.005, 0.02, 16)
    torch.testing.assert_close(
        along(received.T, by_output, directions, transposed=True).T, along(received, by_output[:, None], directions)
    )


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(32), nn.LayerNorm(32)
        self.first, self.second, self.out = nn.Linear(32, 64), nn.Linear(32, 64), nn.Linear(64, 32, bias=False)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(x)
        inner = torch.relu(self.first(inner)) * self.second(inner)
        return self.head(self.last(x + self.out(inner)))  # type: ignore[no-any-return]


def _inputs() -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(200, 32, generator=generator) * torch.logspace(0.5, -1.5, 32)


def test_no_noise_changes_no_bit() -> None:
    model = _Block()
    repaired = denoise_directions(model, _inputs(), noise_variance=0.0).model
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), repaired.parameters(), strict=True))


def test_a_loader_gives_what_a_tensor_gives_and_the_head_stays() -> None:
    torch.manual_seed(0)
    observation = quietnn.transmit(_Block(), wnr_db=6.0, seed=1)
    whole = denoise_directions(observation, _inputs()).model
    loaded = denoise_directions(observation, Evidence(list(_inputs().split(50)))).model
    assert torch.equal(whole.head.weight, observation.model.head.weight)
    assert not torch.equal(whole.first.weight, observation.model.first.weight)
    for one, other in zip(whole.parameters(), loaded.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(16), nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.first(self.norm(x))))  # type: ignore[no-any-return]


class _Blocks(nn.Module):
    """A chain of blocks that ends in logits over a vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(32, 16)
        self.blocks = nn.ModuleList(_Residual() for _ in range(3))
        self.last, self.head = nn.LayerNorm(16), nn.Linear(16, 50)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))  # type: ignore[no-any-return]


def test_block_by_block_gives_the_bits_of_one_part_and_holds_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[list[str]] = []
    whole = _SecondMoments.directions

    def watched(moments: _SecondMoments) -> Iterator[tuple[list[str], Tensor, Tensor]]:
        held.append(list(moments._sums))
        return whole(moments)

    monkeypatch.setattr(_SecondMoments, "directions", watched)
    torch.manual_seed(0)
    observation = quietnn.transmit(_Blocks(), wnr_db=6.0, seed=1)
    one_part = denoise_directions(observation, Evidence(list(_inputs()[:40].split(20))))
    assert [len(names) for names in held] == [7]
    held.clear()
    by_block = denoise_directions(observation, Evidence(_inputs()[:40], batch_size=20))
    first = ["enter.weight", "blocks.0.first.weight", "blocks.0.second.weight"]
    assert held == [first, *([f"blocks.{n}.first.weight", f"blocks.{n}.second.weight"] for n in (1, 2)), []]
    assert by_block.details == one_part.details
    assert 0.3 < by_block.details["logits_factor"] < 1.0
    for one, other in zip(one_part.model.parameters(), by_block.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_half_precision_in_is_half_precision_out() -> None:
    model = _Block().bfloat16()
    repaired = denoise_directions(model, _inputs().bfloat16(), wnr_db=6.0).model
    assert {one.dtype for one in repaired.parameters()} == {torch.bfloat16}
    assert not torch.equal(repaired.first.weight, model.first.weight)


def test_it_is_a_row_of_the_table() -> None:
    assert repair(_Block(), _inputs(), wnr_db=6.0, method="directions").name == "directions"


def test_networks_of_another_kind_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="normalise each input"):
        denoise_directions(nn.Linear(4, 4), torch.rand(8, 4), wnr_db=6.0)


def test_a_network_that_noise_blew_up_is_refused() -> None:
    model = _Block()
    with torch.no_grad():
        model.first.weight.fill_(1e38)
    with pytest.raises(InvalidWeights, match="not finite"):
        denoise_directions(model, _inputs(), noise_variance=1.0)
