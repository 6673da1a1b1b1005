"""What may move where weights stay: every subspace keeps lengths and tells what stands beside the weights."""

import pytest
import torch

from quietnn.repairs.fitting.subspaces import LowRank, ScaledLowRank, Scales, Subspace, Transposed, Whole

RECEIVED = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
BASIS = torch.linalg.qr(torch.randn(6, 2, generator=torch.Generator().manual_seed(1)))[0].T
OTHER = torch.linalg.qr(torch.randn(4, 2, generator=torch.Generator().manual_seed(2)))[0].T
SPACES: dict[str, Subspace] = {
    "low rank": LowRank(BASIS, 4),
    "scales": Scales.of(RECEIVED),
    "both": ScaledLowRank.of(BASIS, RECEIVED),
    "transposed": Transposed(ScaledLowRank.of(OTHER, RECEIVED.T)),
}


@pytest.mark.parametrize("kind", SPACES)
def test_a_subspace_keeps_lengths_and_projects_back(kind: str) -> None:
    space = SPACES[kind]
    moved = torch.randn(space.origin().shape, generator=torch.Generator().manual_seed(3))
    expanded = space.expand(moved)
    assert expanded.shape == (4, 6)
    assert float(expanded.norm()) == pytest.approx(float(moved.norm()), rel=1e-5)
    assert torch.allclose(space.project(expanded), moved, atol=1e-5)
    assert not space.expand(space.origin()).any()


@pytest.mark.parametrize("kind", SPACES)
def test_what_it_tells_stands_beside_the_received_weights(kind: str) -> None:
    space = SPACES[kind]
    moved = torch.randn(space.origin().shape, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(
        space.told(moved).applied(RECEIVED), RECEIVED + space.expand(moved), atol=1e-5, rtol=1e-5
    )


def test_a_row_of_zeros_has_no_factor() -> None:
    space = Scales.of(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    assert torch.equal(
        space.told(torch.tensor([1.0, 5.0])).applied(torch.ones(2, 2)), torch.tensor([[1.0], [2.0]]).expand(2, 2)
    )


def test_a_vector_moves_as_it_likes_and_is_told_by_its_new_value() -> None:
    space = Whole(torch.zeros(3))
    moved = torch.randn(1, 3)
    assert torch.equal(space.expand(moved), moved)
    assert torch.equal(space.project(moved), moved)
    part = space.told(moved)
    assert part.scale is None
    assert part.low_rank is None
