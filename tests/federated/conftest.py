"""A small federation on the embedded digits."""

from collections.abc import Callable

import pytest

from quietnn.channels.awgn import AWGN
from quietnn.federated.air import Air
from quietnn.federated.estimators import Affine, Estimator
from quietnn.federated.partition import sharded
from quietnn.federated.rounds import Federation
from quietnn.federated.settings import FederationSettings
from quietnn.federated.tasks import FederatedTask, load_federated_task
from quietnn.repairs.affine import ML

TAKEN_AS_IT_CAME = Affine(ML)
SMALL = FederationSettings(num_rounds=4, num_epochs=1, batch_size=25, learning_rate=0.05, num_active=3)


@pytest.fixture(scope="session")
def digits() -> FederatedTask:
    return load_federated_task("digits")


@pytest.fixture(scope="session")
def small_federation(digits: FederatedTask) -> Callable[..., Federation]:
    devices = digits.devices(sharded(digits.labels, 10, seed=0))

    def make(wnr_db: float = float("inf"), estimator: Estimator = TAKEN_AS_IT_CAME, seed: int = 0) -> Federation:
        return Federation(devices, SMALL, Air(AWGN(wnr_db=wnr_db)), estimator, seed=seed)

    return make
