"""Whatever a stranger replies is used whole, or refused with a reason."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("flwr", reason="the [flower] extra is not installed")

from flwr.app import Message, MetricRecord, RecordDict
from tests.federated.flower.hostile import HOSTILE

from quietnn.federated.flower.arrays import to_arrays
from quietnn.federated.flower.protocol import BadReply
from quietnn.federated.flower.replies import NO_ANSWER, comparable, read_replies, read_reply

pytestmark = pytest.mark.flower

STATE = {"fc.weight": torch.arange(6.0).view(2, 3), "bn.num_batches_tracked": torch.tensor(3)}
TRAINED = {"fc.weight": STATE["fc.weight"] + 0.5, "bn.num_batches_tracked": torch.tensor(9)}


@pytest.fixture
def question(local_grid: Callable) -> Message:
    return Message(RecordDict(), next(iter(local_grid(1, {}).device_of)), "train")


def honest(question: Message, **numbers: float) -> Message:
    metrics = MetricRecord({"loss": 0.25, "num-examples": 10, **numbers})
    return Message(RecordDict({"arrays": to_arrays(TRAINED), "metrics": metrics}), reply_to=question)


def test_an_honest_reply_is_an_update_and_the_numbers_that_were_asked_for(question: Message) -> None:
    reply = read_reply(honest(question, boast=1e9), STATE, numbers=("loss",), weighted_by="num-examples")
    assert reply.update["fc.weight"].tolist() == [[0.5] * 3] * 2
    assert int(reply.update["bn.num_batches_tracked"]) == 6
    assert reply.metrics == {"loss": 0.25}


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
def test_a_count_of_examples_is_above_zero(number: float, question: Message) -> None:
    with pytest.raises(BadReply, match="num-examples"):
        read_reply(honest(question, **{"num-examples": number}), STATE, numbers=(), weighted_by="num-examples")


def test_a_round_of_replies_is_sorted_by_what_became_of_them(question: Message) -> None:
    answers = {
        0: honest(question),
        2: HOSTILE["diverged"](question, honest(question)),
        3: Message(RecordDict({"metrics": MetricRecord({"loss": 1.0})}), reply_to=question),
    }
    read, failed, diverged = read_replies(answers, (0, 1, 2, 3), STATE, numbers=("loss",), weighted_by="num-examples")
    assert (list(read), list(failed), list(diverged)) == ([0], [1, 3], [2])
    assert failed[1] == NO_ANSWER
    assert "0 records of arrays" in failed[3]


def test_evaluations_with_the_names_that_most_have_are_averaged(question: Message) -> None:
    said = [{"accuracy": 0.5}, {"accuracy": 0.7}, {"accuracy": float("nan")}, {"strange": 1.0}]
    replies = [
        Message(RecordDict({"metrics": MetricRecord({"num-examples": 10, **one})}), reply_to=question) for one in said
    ]
    assert comparable(replies, weighted_by="num-examples") == replies[:2]
