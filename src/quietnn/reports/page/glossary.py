"""The words of the page, each in a sentence or two for a reader who meets it for the first time."""

from collections.abc import Iterable
from typing import Any

from quietnn.methods import METHODS

_WORDS = {
    "WNR": "Weight-to-noise ratio: the power of the weights over the power of the noise on them, in decibels (dB). "
    "At 0 dB they are equal; higher is less noise.",
    "gain": "How many dB more noise a method stands than ML before its result falls to the level chosen. "
    "Positive is better.",
    "interval": "Where the true value probably lies, judged by how much the noise draws differ. "
    "If it includes zero, the gain may be luck.",
    "passes": "How often the examples go through the network during the repair. A backward pass counts as two.",
    "perplexity": "How unsure a language model is of the next token: exp of its mean loss. Lower is better.",
    "draw": "One random noise on the weights. Every method repairs the same draws.",
    "oracle": "Tuned on the test data: a bound on what is possible, never a result.",
    "temperature": "λ′ sets how far weights are shrunk (0 as in MMSE, 1 not at all, as in ML); β shifts them.",
    "pole": "The largest λ′ that makes sense, 1 + η, where η is the WNR as a plain ratio. Past it the formula breaks.",
}
_SPELLINGS = {
    "WNR": ("WNR", "weight-to-noise ratio"),
    "gain": ("gain", "Gain", "gains", "Gains"),
    "interval": ("interval", "intervals"),
    "passes": ("passes", "pass", "Passes"),
    "perplexity": ("perplexity", "Perplexity"),
    "draw": ("noise draw", "noise draws"),
    "oracle": ("oracle",),
    "temperature": ("temperatures", "temperature"),
    "pole": ("pole",),
}
_ONLY_WITH = {"perplexity": "perplexity", "temperature": "surfaces", "pole": "surfaces", "oracle": "oracle"}
"""Words that only some pages use, and what must be there."""

_METHODS = {
    "ml": "The weights exactly as they were received (maximum likelihood). Every other method is compared with them.",
    "mmse": "The received weights, shrunk towards their mean by as much as the noise power suggests.",
    "mmse_layerwise": "MMSE with the statistics of each layer instead of those of the whole model.",
    "mmse_at_mean_noise": "MMSE that takes the mean noise power for the noise of every weight.",
    "mmse_p": "MMSE whose shrinkage, the temperature λ′, is tuned on the labelled examples.",
    "mmse_p_layerwise": "MMSE_p with a temperature for each layer.",
    "mmse_pb": "MMSE whose shrinkage and shift, the temperatures λ′ and β, are tuned on the labelled examples.",
    "mmse_pb_layerwise": "MMSE_pb with temperatures for each layer.",
    "mmse_pb_gradient": "MMSE_pb layer by layer, its temperatures found by gradient steps instead of a search.",
    "mmse_pb_reused": "MMSE_pb with temperatures that were tuned at another WNR.",
    "mmse_pb_oracle": "MMSE_pb tuned on the test data: a bound, never a result.",
    "calibrated": "The statistics of the BatchNorm layers are fitted to the noisy weights; no weight is changed.",
    "mmse_calibrated": "MMSE first, then the BatchNorm statistics fitted to the shrunk weights.",
    "re_estimated": "The BatchNorm statistics are replaced by those of the inputs at hand.",
    "adapted_statistics": "Stored BatchNorm statistics blended with those of the inputs at hand.",
    "t3a": "The last layer replaced by the mean directions of its inputs, class by class.",
    "tent": "Gains and biases of normalisation layers moved until the network is sure of its inputs.",
    "eata": "TENT without unsure and repetitive inputs, important parameters held.",
    "sar": "TENT for sure inputs, towards flat minima.",
    "structured": "Convolutions denoised with a prior that knows their structure, then BatchNorm statistics fitted.",
    "branches": "MMSE for each branch of a network that normalises every input, such as a transformer.",
    "directions": "MMSE along the directions that the inputs of each layer use.",
    "energy": "What each layer adds to a normalised sum is scaled back to the energy it has without noise.",
    "self_trained": "Weights moved, within what the noise allows, until the network is sure of its answers again.",
    "posterior": "Weights fitted to the labelled examples, held near the received ones by the known noise power.",
    "matched": "Gain and shift of every channel of BatchNorm set so that it does as in the clean network.",
    "matched_adapter": "The same with a low-rank addition beside each layer, 2.34 % of the parameters in all.",
    "finetuned": "Plain fine-tuning on the labelled examples, its step size searched.",
    "lora": "Fine-tuning by a low-rank change of each weight matrix.",
    "planned": "One multiplier for the whole run, decided in the first round from the noise power; no search.",
    "planned_layerwise": "Planned, with a multiplier for each layer.",
    "carried": "MMSE around a prediction from the rounds before.",
    "auto": "Tries every method that fits the network and the data; keeps the best on held-out examples.",
    "auto_unlabelled": "The method that suits the network when there are inputs and no labels.",
}
_NEEDS = {
    "nothing": "Needs no data.",
    "inputs": "Needs inputs, no labels.",
    "shares": "Needs inputs whose classes have known shares, no labels.",
    "labels": "Needs labelled examples.",
    "teacher": "Needs inputs and the clean network, no labels.",
}

_UNREMARKED = {"ml", "mmse_pb_oracle", "mmse_pb_reused", "planned", "planned_layerwise", "carried"}
"""Methods whose needs are in their sentence, or are those of any federation."""


def glossary(methods: Iterable[str], *, uses: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The words of a page with these methods, each with its spellings and its text; `uses` names what else is there.

    A method that the table lacks has no entry, nor has one without a sentence: no name from a record becomes a word.
    """
    there = {*uses}
    text_alone = "perplexity" in there and "accuracy" not in there
    words = [word for word in _WORDS if word not in _ONLY_WITH or _ONLY_WITH[word] in there]
    found = [{"word": word, "spellings": list(_SPELLINGS[word]), "text": _WORDS[word]} for word in words]
    for method in METHODS:
        if method in {*methods} and method in _METHODS:
            label = METHODS[method].label
            found.append({"word": label, "spellings": [label], "text": _sentence(method, text_alone)})
    return found


def _sentence(method: str, text_alone: bool) -> str:
    """What a method does and, where a user has to know, what it needs; text is its own label."""
    said, needs = _METHODS[method], METHODS[method].needs
    if method in _UNREMARKED:
        return said
    if text_alone and needs != "nothing":
        return f"{said.replace('labelled examples', 'text')} Needs plain text."
    return f"{said} {_NEEDS[needs]}"
