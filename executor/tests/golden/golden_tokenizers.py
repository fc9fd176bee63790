"""The golden models' tokenizers, each trained on a short text of our own, in the published styles."""

import json
import re

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

VOCAB = 384  # entries of every tokenizer and rows of every embedding

CORPUS = """
A lever needs a place to stand. Put the fulcrum near the load and a small push moves a large
stone; put it near the hand and nothing moves at all. Reading a weight from memory takes longer
than multiplying by it, so a planner asks where each weight should live: close to the cores, or
across a slow link. The first token waits for the whole prompt; every later token waits for every
weight. Batches share the reading, caches share the past, and the ledger shows who paid for it.
When the prediction and the measurement disagree, the measurement is right and the model is
wrong, and the difference is the next thing to learn. 1 GB is 10^9 bytes, 1 GiB is 2^30 bytes.
It's not the same: don't mix them, we've seen what happens; they'll differ by 7.4 percent.
Der Hebel ist ein Körper, der sich um einen festen Punkt dreht. Le levier déplace la pierre.
    for step in 0..24 {
        let token = argmax(&logits[step]);
    }
"""

PROMPT = "Put the fulcrum near the load, and a small push moves the world."

TOKENIZER_TEXTS = [
    PROMPT,
    "",
    " ",
    "  two spaces,\ttab\n\n    indented\n",
    "It's 2025: don't pay 1234567 $ for 4.8 TB/s!",
    "Köln, déjà vu, Ελλάδα, 東京 and 🦀🚀.",
    "e\u0301 is é after NFC",
]

# The split pattern that Llama 3 and Qwen2 publish: it needs look-ahead and Unicode classes.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(first, last, split, prefix, normalizer=None):
    """Byte-level BPE: special tokens `first` open the vocabulary, `last` close it (as in Llama 3)."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)
    if split:
        pattern = pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated")
        level = pre_tokenizers.Sequence([pattern, level])
    tokenizer.pre_tokenizer = level
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(last),
        special_tokens=first,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS], trainer)
    tokenizer.add_special_tokens(last)
    return with_prefix(tokenizer, prefix)


def byte_fallback():
    """SentencePiece-like BPE as in Llama 2 and Mistral: "▁" for spaces, unknown characters as bytes."""
    specials = ["<unk>", "<s>", "</s>"]
    raw_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=specials + raw_bytes, show_progress=False
    )
    # The trainer sees one "▁word" at a time; without a split a merge could span the whole corpus.
    words = [word for word in re.findall(r"\S+", CORPUS) if word.isascii()]
    tokenizer.train_from_iterator(words, trainer)
    # Byte tokens belong to the model only: text that spells "<0x41>" is text.
    stored = json.loads(tokenizer.to_str())
    stored["added_tokens"] = [t for t in stored["added_tokens"] if t["content"] in specials]
    return with_prefix(tokenizers.Tokenizer.from_str(json.dumps(stored)), "<s>")


def with_prefix(tokenizer, prefix):
    """Lets `tokenizer` put the special token `prefix` before each text (none when None)."""
    if prefix:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{prefix} $A",
            pair=f"{prefix} $A {prefix} $B",
            special_tokens=[(prefix, tokenizer.token_to_id(prefix))],
        )
    assert tokenizer.get_vocab_size() == VOCAB, tokenizer.get_vocab_size()
    return tokenizer


def opt_tokenizer():
    return byte_level(["<s>", "<pad>", "</s>", "<unk>"], [], False, "</s>")


def llama3_tokenizer():
    return byte_level([], ["<|begin_of_text|>", "<|end_of_text|>"], True, "<|begin_of_text|>")


def qwen_tokenizer():
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return byte_level([], specials, True, None, normalizers.NFC())
