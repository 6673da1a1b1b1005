"""Small language models of many families, trained for a few seconds on sentences from a small grammar."""

import random
from pathlib import Path
from typing import Any

import torch
from torch import nn

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
_OPT = {
    "hidden_size": 32,
    "word_embed_proj_dim": 32,
    "ffn_dim": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "n_positions": 32}

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**SIZES, "tie_word_embeddings": True}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", _GPT2),
    "opt": ("OPTConfig", "OPTForCausalLM", _OPT),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", SIZES),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {**SIZES, "head_dim": 8}),
    "t5": ("T5Config", "T5ForConditionalGeneration", _T5),
}

_WHO = ("the cat", "a small dog", "the old king", "her friend", "a blue bird", "the girl")
_DID = ("found", "saw", "wanted", "lost", "carried", "liked")
_WHAT = ("a ball", "the red hat", "some bread", "a long rope", "the moon", "a tiny house")
_WHERE = ("in the garden", "by the river", "under the tree", "at home", "on the hill")
_THEN = ("and was happy", "and went to sleep", "but did not tell", "and came back")


def story(num_sentences: int, seed: int) -> str:
    """Sentences from the grammar, a paragraph every five."""
    rng = random.Random(seed)
    sentences = [
        " ".join(map(rng.choice, (_WHO, _DID, _WHAT, _WHERE, _THEN))).capitalize() + "." for _ in range(num_sentences)
    ]
    return "\n\n".join(" ".join(sentences[start : start + 5]) for start in range(0, num_sentences, 5)) + "\n"


def write_tokenizer(folder: Path) -> int:
    """A tokenizer with a token for each word of the grammar; how many there are."""
    import tokenizers
    import transformers

    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.WordLevelTrainer(special_tokens=["<pad>", "<unk>", "<s>", "</s>"])
    model.train_from_iterator([story(400, 0)], trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    fast.save_pretrained(folder)
    return len(fast)


def write_language_model(folder: Path, family: str, *, num_steps: int = 120, seed: int = 0) -> nn.Module:
    """A folder with config, weights and tokenizer of a small model that has learnt the grammar."""
    import transformers

    from quietnn.tasks.language_model import language_model, next_token_loss, num_tokens

    folder.mkdir(parents=True, exist_ok=True)
    size = write_tokenizer(folder)
    config_name, model_name, settings = FAMILIES[family]
    config = getattr(transformers, config_name)(
        vocab_size=size, pad_token_id=0, bos_token_id=2, eos_token_id=3, decoder_start_token_id=0, **settings
    )
    torch.manual_seed(seed)
    model: Any = getattr(transformers, model_name)(config)
    model.save_pretrained(folder)
    (folder / "train.txt").write_text(story(600, seed + 1))
    known = language_model(folder, tuning=folder / "train.txt").tuning_examples(10_000, 0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model.train()
    for step in range(num_steps):
        positions = torch.randint(len(known), (8,), generator=torch.Generator().manual_seed(step))
        batch = known.take(positions)
        assert isinstance(batch.inputs, dict)
        loss = next_token_loss(model(**batch.inputs).logits, batch.labels).sum() / num_tokens(batch.labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval().save_pretrained(folder)
    trained: nn.Module = model
    return trained
