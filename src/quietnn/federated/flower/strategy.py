"""Any Flower strategy over the air: the devices' weights meet in a noisy sum, and the strategy gets the estimate of it.

The wrapped strategy gets the replies of a round with the server's estimate in the place of every device's weights.
Whatever mean it takes of equal things is the estimate; what it does next (server momentum, Adam) goes on from there.
Strategies that compare devices with each other (medians, Krum) have nothing to compare here and do what a mean does.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from quietnn.errors import InvalidConfig, QuietnnError
from quietnn.federated.checkpoint import Journal
from quietnn.federated.devices import Diverged
from quietnn.federated.flower.arrays import flat, in_kind, remembered, remind, to_arrays, to_state
from quietnn.federated.flower.guard import GuardedGrid
from quietnn.federated.flower.nodes import Nodes
from quietnn.federated.flower.replies import NO_ANSWER, Reply, comparable, read_replies
from quietnn.federated.rounds import Federation, ServerState, aggregate, check_finite, participants
from quietnn.federated.screening import screen
from quietnn.records import Record

LOGGER = logging.getLogger("flwr")

CHECKPOINT, ROUNDS = "server.safetensors", "rounds.jsonl"
_OPTIMISER, _NODES = "flower optimiser/", "flower nodes"


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
        metrics: Collection[str] = ("loss",),
        keys: Mapping[bytes, int] | None = None,
    ) -> None:
        """Wrap a strategy.

        Args:
            strategy: what to do with the estimate; it must leave the choice of devices to the wrapper, so give it
                `fraction_train=1.0`.
            federation: the object that `quietnn.federated.rounds.run_round` takes: the air, the estimator, the seed and
                who takes part. Of its devices only the numbers are used.
            noisy: names of the parameters that go over the air (`quietnn.weights.noisy_names(model)`).
            folder: where finished rounds are kept, so that a server that was killed goes on after the last of them;
                None keeps nothing.
            settings: whatever tells one run from another; a folder with other settings is refused.
            patience: seconds to wait for devices that are not there yet before the first round.
            metrics: names of the numbers that every device reports with its weights; a reply without one of them is
                refused, and others are not read.
            keys: the number of each device's public key (`quietnn.federated.flower.nodes.read_keys`); without them a
                node has the number that it says, and keeps it.
        """
        self._strategy = strategy
        self._federation = federation
        self._noisy = tuple(noisy)
        kept = None if folder is None else folder / CHECKPOINT
        self._journal = Journal(kept, dict(settings or {}), lines=None if folder is None else folder / ROUNDS)
        self._nodes = Nodes(federation.devices, patience=patience, keys=keys)
        self._metrics = tuple(metrics)
        self._weighted_by = str(getattr(strategy, "weighted_by_key", "num-examples"))
        self._server = ServerState(0, {})
        self._offset = 0
        self._started = 0.0
        self._chosen: tuple[int, ...] = ()
        self._record: Record = {}

    @property
    def records(self) -> list[Record]:
        """The records of all finished rounds, those before a restart included."""
        return list(self._journal.rounds)

    def summary(self) -> None:
        """Log what is wrapped, and in what."""
        LOGGER.info("\t├──> Over the air: %s", self._federation.air)
        LOGGER.info("\t│\t├── estimator: %s", self._federation.estimator)
        LOGGER.info("\t│\t└── %d of %d devices", self._federation.settings.num_active, len(self._federation.devices))
        self._strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages to the devices that the seed chose for this round."""
        number = self._number(server_round)
        # What is broadcast counts: a strategy around this one may have changed it.
        self._server = ServerState(number, to_state(arrays), self._server.memory)
        federation = self._federation
        nodes = self._nodes.wait_for(grid, 1 if number > self._offset else len(federation.devices))
        num_active = federation.settings.num_active
        chosen = participants(federation.devices, num_active, round_number=number, seed=federation.seed)
        self._started, self._chosen, self._record = time.monotonic(), chosen, {"round": number + 1}
        if news := self._nodes.news():
            self._record["refused_nodes"] = news
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

        A reply that is not fit for that is left out and named in the record, with its reason. If the training of most
        devices left the finite numbers, it has `Diverged`, and the records say so.
        """
        if not self._chosen:
            raise InvalidConfig("aggregate_train comes after configure_train of the same round")
        answers = {self._nodes.device(reply.metadata.src_node_id): reply for reply in replies}
        try:
            return self._aggregate({key: reply for key, reply in answers.items() if key is not None})
        except Diverged as error:
            self._journal.stop(self._record | {"status": "diverged", "reason": str(error)})
            LOGGER.error("round %d: %s", self._number(server_round) + 1, error)
            raise

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the wrapped strategy does."""
        return self._strategy.configure_evaluate(self._number(server_round) + 1, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the wrapped strategy does, with the replies that can be averaged."""
        sound = comparable(replies, weighted_by=self._weighted_by)
        return self._strategy.aggregate_evaluate(self._number(server_round) + 1, sound) if sound else None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
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
            cast(Grid, GuardedGrid(grid)),
            to_arrays(self._server.state),
            max(num_rounds - self._offset, 0),
            timeout,
            train_config,
            evaluate_config,
            finish,
        )
        if not result.arrays:
            result.arrays = to_arrays(self._server.state)
        for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            found = getattr(result, kind)
            setattr(result, kind, {number + self._offset: metrics for number, metrics in found.items()})
        return result

    def _number(self, server_round: int) -> int:
        """The number of a round from 0, over all starts; Flower counts from 1, anew at each start."""
        return self._offset + server_round - 1

    def _read(self, answers: Mapping[int, Message]) -> dict[int, Reply]:
        """The replies that can be used; the record tells why the other devices of the round are not heard."""
        state, chosen = self._server.state, self._chosen
        read, failed, diverged = read_replies(
            answers, chosen, state, numbers=self._metrics, weighted_by=self._weighted_by
        )
        kept, refused = screen(
            state,
            {device: reply.update for device, reply in read.items()},
            noisy=self._noisy,
            round_number=self._server.num_rounds_done,
            norm_bound=self._federation.settings.norm_bound,
            diverged=diverged,
            num_chosen=len(chosen),
        )
        failed |= refused
        missing = [device for device in chosen if device in failed]
        self._record |= {"devices": [device for device in chosen if device not in failed], "missing": missing}
        if missing:
            said = ", ".join(f"device {device} ({failed[device]})" for device in missing)
            LOGGER.warning("round %s goes on without %s", self._record["round"], said)
            reasons = [failed[device] for device in missing]
            if set(reasons) != {NO_ANSWER}:
                self._record["reasons"] = reasons
        return {device: read[device] for device in kept}

    def _aggregate(self, answers: Mapping[int, Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        server, number = self._server, self._server.num_rounds_done
        replies = self._read(answers)
        updates = {device: reply.update for device, reply in replies.items()}
        if not updates:
            self._server = replace(server, num_rounds_done=number + 1)
            return None, None
        after, notes = aggregate(self._federation, server, updates, noisy=self._noisy)
        estimate = to_arrays(after.state, wide=True)
        handed = [self._handed(reply, estimate, answers[device]) for device, reply in replies.items()]
        arrays, metrics = self._strategy.aggregate_train(number + 1, handed)
        if arrays is None:
            raise QuietnnError(f"{type(self._strategy).__name__} made nothing of the replies of round {number + 1}")
        state = in_kind(arrays, server.state)
        check_finite(state, f"what {type(self._strategy).__name__} made of round {number + 1}")
        self._server = replace(after, state=state)
        self._record |= notes | flat(metrics)
        return to_arrays(state), metrics

    def _handed(self, reply: Reply, estimate: ArrayRecord, answer: Message) -> Message:
        """What the wrapped strategy gets of a device: the estimate, the checked numbers, and a weight that is ours."""
        # A record each, of the same arrays: some strategies empty the records they read.
        metrics = MetricRecord({**reply.metrics, self._weighted_by: 1})
        answer.content = RecordDict({"arrays": ArrayRecord(dict(estimate)), "metrics": metrics})
        return answer

    def _finish(self, metrics: MetricRecord | None) -> None:
        """The round is over: its record and the weights after it are kept."""
        seconds = time.monotonic() - self._started
        optimiser = {_OPTIMISER + place: tensor for place, tensor in remembered(self._strategy).items()}
        nodes = {_NODES: self._nodes.remembered()}
        server = replace(self._server, memory={**self._server.memory, **optimiser, **nodes})
        self._journal.finish(server, self._record | flat(metrics) | {"seconds": round(seconds, 3)})

    def _resume(self, names: tuple[str, ...]) -> ServerState | None:
        """The server after its last finished round, and with it whatever the wrapped strategy remembered."""
        server = self._journal.load()
        if self._journal.fell_back is not None:
            LOGGER.warning("%s", self._journal.fell_back)
        if server is None:
            return None
        kept = {place: tensor for place, tensor in server.memory.items() if place.startswith(_OPTIMISER)}
        remind(self._strategy, {place.removeprefix(_OPTIMISER): tensor for place, tensor in kept.items()})
        if _NODES in server.memory:
            self._nodes.remind(server.memory[_NODES])
        memory = {name: tensor for name, tensor in server.memory.items() if name not in kept and name != _NODES}
        # Files do not keep the order of tensors, and some strategies go by it.
        return replace(server, state={name: server.state[name] for name in names}, memory=memory)
