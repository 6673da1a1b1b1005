"""Every word that a reader meets has its sentence, and only words of ours do."""

import pytest

from quietnn.methods import METHODS
from quietnn.reports.page.glossary import glossary


def texts(*methods: str, uses: tuple[str, ...] = ()) -> dict[str, str]:
    return {term["word"]: term["text"] for term in glossary(methods, uses=uses)}


@pytest.mark.parametrize(
    "word", ["WNR", "ML", "MMSE", "MMSE_pb", "Calibrated", "Posterior", "gain", "interval", "passes"]
)
def test_the_words_of_the_page_are_explained(word: str) -> None:
    assert texts("ml", "mmse", "mmse_pb", "calibrated", "posterior")[word].endswith(".")


def test_words_that_only_some_pages_use_are_explained_there() -> None:
    assert not {"perplexity", "pole", "oracle", "Posterior"} & {*texts("ml")}
    assert {"perplexity", "pole", "oracle"} <= {*texts("ml", uses=("perplexity", "surfaces", "oracle"))}


def test_a_method_says_what_it_needs() -> None:
    found = texts("calibrated", "posterior")
    assert found["Calibrated"].endswith("Needs inputs, no labels.")
    assert found["Posterior"].endswith("Needs labelled examples.")


def test_for_language_models_text_stands_for_labels() -> None:
    assert texts("posterior", uses=("perplexity",))["Posterior"].endswith("Needs plain text.")
    assert texts("posterior", uses=("perplexity", "accuracy"))["Posterior"].endswith("Needs labelled examples.")


def test_a_name_from_a_record_never_becomes_a_word() -> None:
    assert texts("<script>", "my_method") == texts()


def test_no_sentence_is_longer_than_a_reader_likes() -> None:
    for text in texts(*METHODS, uses=("perplexity", "surfaces", "oracle")).values():
        assert all(len(sentence.split()) <= 25 for sentence in text.split(". "))
