"""Any Flower strategy over the air: the devices' weights meet in a noisy sum, and the strategy gets the estimate of it.

Flower's strategies average the weights that devices reply with. Over the air nobody ever holds those: the server
receives one noisy sum. So the wrapper takes the replies of a round, computes with `quietnn.federated.aggregate` what
the server of an over-the-air system would hold, and hands the wrapped strategy the same replies with that in the place
of every device's weights. Whatever mean the strategy takes of equal things is the estimate; what it does next (server
momentum, Adam) goes on from there. Strategies that compare devices with each other (medians, Krum) have nothing to
compare here and do what a mean does.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.federated.aggregate import aggregate
from quietnn.federated.devices import Diverged
from quietnn.federated.estimators import NO_MEMORY
from quietnn.federated.flower.arrays import flat, in_kind, to_arrays, to_state, to_wide_arrays, update_of, with_arrays
from quietnn.federated.flower.journal import Journal
from quietnn.federated.flower.nodes import Nodes
from quietnn.federated.flower.optimiser import remembered, remind
from quietnn.federated.flower.protocol import diverged_in
from quietnn.federated.rounds import Federation, ServerState, participants
from quietnn.records import Record
from quietnn.weights import Weights

LOGGER = logging.getLogger("flwr")

_OPTIMISER = "flower optimiser/"

EvaluateArrays = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass
class _Round:
    """What is known of a round between its two halves."""

    started: float
    chosen: tuple[int, ...]
    record: Record


class OverTheAir(Strategy):
    """Noisy superposition and denoising around any Flower strategy.

    Devices reply with trained weights, as everywhere in Flower; the clients need nothing from quietnn but an answer to
    the question which device they are (`quietnn.federated.flower.protocol`).
    """

    def __init__(
        self,
        strategy: Strategy,
        federation: Federation,
        *,
        noisy: Collection[str],
        folder: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        patience: float = 60.0,
    ) -> None:
        """Wrap a strategy.

        Args:
            strategy: what to do with the estimate; it must leave the choice of devices to the wrapper, so give it
                `fraction_train=1.0`.
            federation: the object that `quietnn.federated.rounds.run_round` takes: the air, the estimator, the seed and
                who takes part. Of its devices only the numbers are looked at.
            noisy: names of the parameters that go over the air (`quietnn.weights.noisy_names(model)`).
            folder: where finished rounds are kept, so that a server that was killed goes on after the last of them;
                None keeps nothing.
            settings: whatever tells one run from another; a folder with other settings is refused.
            patience: seconds to wait for devices that are not there yet before the first round.
        """
        self._strategy = strategy
        self._federation = federation
        self._noisy = tuple(noisy)
        self._journal = Journal(folder, dict(settings or {}))
        self._nodes = Nodes(federation.devices, patience=patience)
        self._server: ServerState | None = None
        self._offset = 0
        self._round: _Round | None = None

    @property
    def records(self) -> list[Record]:
        """The records of all finished rounds, those before a restart included."""
        return list(self._journal.rounds)

    def summary(self) -> None:
        """Log what is wrapped, and in what."""
        LOGGER.info("\t├──> Over the air: %s", self._federation.air)
        LOGGER.info("\t│\t├── estimator: %s", self._federation.estimator)
        LOGGER.info("\t│\t└── %d of %d devices", self._federation.num_active, len(self._federation.devices))
        self._strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages to the devices that the seed chose for this round."""
        number = self._number(server_round)
        # What is broadcast counts: a strategy around this one may have changed it.
        memory = NO_MEMORY if self._server is None else self._server.memory
        self._server = ServerState(number, to_state(arrays), memory)
        federation = self._federation
        nodes = self._nodes.wait_for(grid, 1 if number > self._offset else len(federation.devices))
        chosen = participants(federation.devices, federation.num_active, round_number=number, seed=federation.seed)
        self._round = _Round(time.monotonic(), chosen, {"round": number + 1})
        wanted = {nodes[device] for device in chosen if device in nodes}
        if not wanted:
            return []
        messages = list(self._strategy.configure_train(number + 1, arrays, config, grid))
        # Every device is looked for, not only those of this round: a sample may hold these by chance, for some rounds.
        missed = set(nodes.values()).difference(message.metadata.dst_node_id for message in messages)
        if missed.intersection(grid.get_node_ids()):  # those that went away meanwhile are nobody's fault
            raise InvalidConfig(
                f"{type(self._strategy).__name__} chose {len(messages)} of {len(nodes)} nodes itself, and who takes "
                "part is chosen by the seed; give it fraction_train=1.0 and set num_active in the federation"
            )
        return [message for message in messages if message.metadata.dst_node_id in wanted]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Superpose what the devices sent, add the noise, estimate, and let the wrapped strategy take it from there.

        Raises:
            Diverged: if a device's training left the finite numbers; the records say so.
        """
        if self._round is None or self._server is None:
            raise InvalidConfig("aggregate_train comes after configure_train of the same round")
        answers = {self._nodes.device(reply.metadata.src_node_id): reply for reply in replies}
        good = {device: reply for device, reply in answers.items() if device is not None and not reply.has_error()}
        self._note_absent(answers, good)
        try:
            return self._aggregate(self._server, {device: good[device] for device in sorted(good)})
        except Diverged as error:
            self._journal.stop(self._round.record | {"status": "diverged", "reason": str(error)})
            LOGGER.error("round %d: %s", self._number(server_round) + 1, error)
            raise

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the wrapped strategy does."""
        return self._strategy.configure_evaluate(self._number(server_round) + 1, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the wrapped strategy does."""
        return self._strategy.aggregate_evaluate(self._number(server_round) + 1, replies)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateArrays | None = None,
    ) -> Result:
        """Run the rounds that are not finished yet, and keep each one when it is.

        The result covers the rounds of this start, counted from the beginning of the whole run; `records` covers all.
        """
        self._server = self._resume(tuple(initial_arrays)) or ServerState(0, to_state(initial_arrays))
        self._offset = self._server.num_rounds_done
        if self._offset:
            LOGGER.info("Going on after round %d of %d", self._offset, num_rounds)

        def finish(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if server_round == 0 and self._offset:
                return None
            metrics = None if evaluate_fn is None else evaluate_fn(server_round + self._offset, arrays)
            if server_round > 0:
                self._finish(metrics)
            return metrics

        result = super().start(
            grid,
            to_arrays(self._server.state),
            max(num_rounds - self._offset, 0),
            timeout,
            train_config,
            evaluate_config,
            finish,
        )
        if not result.arrays:
            result.arrays = to_arrays(self._server.state)
        return _counted_from(self._offset, result)

    def _number(self, server_round: int) -> int:
        """The number of a round from 0, over all starts; Flower counts from 1, anew at each start."""
        return self._offset + server_round - 1

    def _note_absent(self, answers: Mapping[int | None, Message], good: Collection[int | None]) -> None:
        assert self._round is not None
        missing = [device for device in self._round.chosen if device not in good]
        devices = [device for device in self._round.chosen if device in good]
        self._round.record |= {"devices": devices, "missing": missing}
        if missing:
            reasons = {device: str(answers[device].error.reason) for device in missing if device in answers}
            LOGGER.warning(
                "round %s goes on without %s: %s",
                self._round.record["round"],
                ", ".join(f"device {device}" for device in missing),
                "; ".join(reasons.values()) or "no answer",
            )
            if reasons:
                self._round.record |= {"reasons": [reasons.get(device, "no answer") for device in missing]}

    def _aggregate(
        self, server: ServerState, replies: Mapping[int, Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        assert self._round is not None
        number, federation = server.num_rounds_done, self._federation
        updates: dict[int, Weights] = {}
        for device, reply in replies.items():
            reason = diverged_in(reply)
            if reason is not None:
                raise Diverged(reason)
            updates[device] = update_of(reply, server.state)
        if not updates:
            self._server = replace(server, num_rounds_done=number + 1)
            return None, None
        aggregation = aggregate(
            server.state,
            updates,
            noisy=self._noisy,
            air=federation.air,
            estimator=federation.estimator,
            round_number=number,
            seed=federation.seed,
            memory=server.memory,
            score=federation.score,
            oracle=federation.oracle,
            told=federation.told,
        )
        estimate = to_wide_arrays(aggregation.state)
        # A record each, of the same arrays: some strategies empty the records they read.
        handed = [with_arrays(reply, ArrayRecord(dict(estimate))) for reply in replies.values()]
        arrays, metrics = self._strategy.aggregate_train(number + 1, handed)
        if arrays is None:
            raise QuietnnError(f"{type(self._strategy).__name__} made nothing of the replies of round {number + 1}")
        state = in_kind(arrays, server.state)
        self._server = ServerState(number + 1, state, aggregation.memory)
        self._round.record |= aggregation.notes | flat(metrics)
        return to_arrays(state), metrics

    def _finish(self, metrics: MetricRecord | None) -> None:
        """The round is over: its record and the weights after it are kept."""
        assert self._round is not None
        assert self._server is not None
        seconds = time.monotonic() - self._round.started
        optimiser = {_OPTIMISER + place: tensor for place, tensor in remembered(self._strategy).items()}
        server = replace(self._server, memory={**self._server.memory, **optimiser})
        self._journal.finish(server, self._round.record | flat(metrics) | {"seconds": round(seconds, 3)})

    def _resume(self, names: tuple[str, ...]) -> ServerState | None:
        """The server after its last finished round, and with it whatever the wrapped strategy remembered."""
        server = self._journal.load()
        if server is None:
            return None
        kept = {place: tensor for place, tensor in server.memory.items() if place.startswith(_OPTIMISER)}
        remind(self._strategy, {place.removeprefix(_OPTIMISER): tensor for place, tensor in kept.items()})
        memory = {name: tensor for name, tensor in server.memory.items() if name not in kept}
        # Files do not keep the order of tensors, and some strategies go by it.
        return replace(server, state={name: server.state[name] for name in names}, memory=memory)


def _counted_from(offset: int, result: Result) -> Result:
    """The result with its rounds counted from the beginning of the run."""
    if offset:
        for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            found = getattr(result, kind)
            setattr(result, kind, {number + offset: metrics for number, metrics in found.items()})
    return result
