"""One noisy network as its receiver sees it, and what a method makes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, nn

from quietnn.errors import InvalidConfig
from quietnn.noise import NoiseVariance
from quietnn.repairs.affine import Temperatures
from quietnn.repairs.fitting.scratch import Augment
from quietnn.repairs.grouped import GroupTemperatures, Reception
from quietnn.repairs.temperatures.coarse_to_fine import coarse_to_fine, even_grid
from quietnn.repairs.temperatures.grid import AUTHORS_GRIDS, search_grid
from quietnn.repairs.temperatures.layerwise import search_layerwise, start_from
from quietnn.repairs.temperatures.racing import race_coarse_to_fine
from quietnn.repairs.temperatures.result import TuningResult
from quietnn.repairs.temperatures.score import Score
from quietnn.repairs.temperatures.steps import Scale
from quietnn.repairs.temperatures.tune import Judge, SubsetScore
from quietnn.targets import noisy_weights
from quietnn.tasks.base import Examples
from quietnn.theory.family import Form
from quietnn.weights import WeightStatistics

SEARCHES = ("coarse-to-fine", "racing", "even-grid", *AUTHORS_GRIDS)
"""How the whole-model temperatures are searched: 22 points fitted to the noise, the same points raced, the full grid of
the same steps, or one of the authors' grids."""


@dataclass(frozen=True)
class Search:
    """How temperatures are searched: over the whole model, then layer by layer.

    Attributes:
        whole: one of `SEARCHES`.
        criterion: what ranks whole-model points, `"accuracy"` (ties broken by loss) or `"loss"`.
        layerwise_criterion: the same for the steps of the coordinate search.
        layerwise_sweeps: how often the coordinate search visits every layer.
        form: how the prior mean enters the family (see `Form`).
    """

    whole: str = "coarse-to-fine"
    criterion: str = "accuracy"
    layerwise_criterion: str = "loss"
    layerwise_sweeps: int = 1
    form: str = Form.CENTRED


DEFAULT_SEARCH = Search()


@dataclass(frozen=True)
class Outcome:
    """The network a method made, and how.

    Attributes:
        model: the denoised network.
        num_passes: forward passes over the tuning examples that finding it cost; a backward pass counts two.
        search: the search that chose the temperatures, if there was one.
        failed: why the method gave up, where it did; the network is then the one that was received.
        chosen: what a method that chooses among others chose.
        expected_accuracy: what the method itself expects, where it says so.
        accuracy_at_least: its lower limit of that.
    """

    model: nn.Module
    num_passes: int = 0
    search: TuningResult[Temperatures] | TuningResult[GroupTemperatures] | None = None
    failed: str | None = None
    chosen: str | None = None
    expected_accuracy: float | None = None
    accuracy_at_least: float | None = None


class Receiver:
    """One noisy network as its receiver sees it, with searches that several methods share done once.

    Args:
        model: the network as received, the medium's gain undone.
        noise_variance: the noise variance the receiver believes in, one for all weights or by tensor.
        tuning: labelled examples to tune on.
        evaluate: scores a network on examples.
        search: how temperatures are found.
        statistics: clean statistics of the whole model, where the sender tells them.
        oracle: the test examples, for methods that are labelled oracle and for nothing else.
        reference: the same draw at another noise power, for methods that reuse its temperatures.
        augment: random variants of the inputs, for methods that fit to them.
        seed: of the methods that split the examples or draw variants of them.
        as_received: the network before a gain was undone, where the medium has one.
    """

    def __init__(
        self,
        model: nn.Module,
        noise_variance: NoiseVariance,
        tuning: Examples,
        evaluate: Callable[[nn.Module, Examples], Score],
        *,
        search: Search = DEFAULT_SEARCH,
        statistics: WeightStatistics | None = None,
        oracle: Examples | None = None,
        reference: "Callable[[], Receiver] | None" = None,
        augment: Augment | None = None,
        seed: int = 0,
        as_received: nn.Module | None = None,
    ) -> None:
        self.model = model
        self.as_received = model if as_received is None else as_received
        self.noise = noise_variance
        self.tuning = tuning
        self.evaluate = evaluate
        self.search = search
        self.oracle = oracle
        self.augment = augment
        self.seed = seed
        self._reference = reference
        self._statistics = statistics
        received = noisy_weights(model)
        known = None if statistics is None else {"whole": statistics}
        self.whole = Reception.of(received, noise_variance, statistics=known, form=search.form)
        self.layers = Reception.of(received, noise_variance, groups="layerwise", form=search.form)
        self.noise_variance = self.whole.noise_variance  # that of an average weight
        self.scale = Scale(self.whole.statistics["whole"], self.noise_variance)

        def score_some(network: nn.Module, positions: Tensor) -> Score:
            whole = len(positions) == len(tuning)
            return evaluate(network, tuning if whole else tuning.take(positions))

        self.judge = Judge(model, SubsetScore(score_some, len(tuning)))

    @cached_property
    def reference(self) -> "Receiver":
        """The receiver whose temperatures are reused."""
        if self._reference is None:
            raise InvalidConfig("reused temperatures need the WNR they were tuned at; set reuse_wnr_db")
        return self._reference()

    @cached_property
    def whole_search(self) -> TuningResult[Temperatures]:
        """The search for MMSE_pb over the whole model."""
        return self._search_whole(with_beta=True)

    @cached_property
    def whole_search_without_beta(self) -> TuningResult[Temperatures]:
        """The search for MMSE_p over the whole model: the slice `beta = 0`."""
        return self._search_whole(with_beta=False)

    @cached_property
    def layerwise_search(self) -> TuningResult[GroupTemperatures]:
        """The coordinate search from the whole-model optimum."""
        start = start_from(self.whole_search.temperatures, self.scale, self.layers)
        return search_layerwise(
            self.judge.for_reception(self.layers),
            self.layers,
            start,
            num_sweeps=self.search.layerwise_sweeps,
            criterion=self.search.layerwise_criterion,
        )

    def as_oracle(self) -> "Receiver":
        """The same receiver with the test examples in place of the tuning examples."""
        if self.oracle is None:
            raise InvalidConfig("there are no test examples to be an oracle with")
        return Receiver(
            self.model, self.noise, self.oracle, self.evaluate, search=self.search, statistics=self._statistics
        )

    def _search_whole(self, *, with_beta: bool) -> TuningResult[Temperatures]:
        if self.search.whole == "racing":
            return race_coarse_to_fine(
                self.judge.for_some(self.whole),
                self.scale,
                len(self.tuning),
                with_beta=with_beta,
                criterion=self.search.criterion,
                seed=self.seed,
            )
        score = self.judge.for_reception(self.whole)
        if self.search.whole == "coarse-to-fine":
            return coarse_to_fine(score, self.scale, with_beta=with_beta, criterion=self.search.criterion)
        grid = even_grid(self.scale) if self.search.whole == "even-grid" else AUTHORS_GRIDS[self.search.whole]
        grid = tuple(point for point in grid if with_beta or point.beta == 0)
        return search_grid(score, grid, criterion=self.search.criterion)
