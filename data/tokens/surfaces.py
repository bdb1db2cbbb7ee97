"""The text that stands for each token of a Hugging Face tokenizer."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
METASPACE = "▁"  # for a space, in SentencePiece's tokens


def surfaces(
    tokenizer: Any, content: Mapping[str, Any], ordinary: Sequence[str]
) -> list[bytes]:
    """The text of each ordinary token in UTF-8, spaces included: " the" for the token ▁the, "ing"
    for ##ing.

    The decoder of a tokenizer.json gives it, or one that suits its model if the file has none.
    """
    if is_byte_level(content):
        added = {token["content"] for token in content["added_tokens"]}
        byte_of = {character: byte for byte, character in enumerate(byte_alphabet())}
        return [
            bytes(map(byte_of.__getitem__, token))
            if token not in added and byte_of.keys() >= set(token)
            else token.encode()
            for token in ordinary
        ]

    if not content.get("decoder"):
        tokenizer.decoder = suitable_decoder(content, ordinary)
    texts = [text.encode() for text in decoded_alone(tokenizer, len(ordinary))]
    if "ByteFallback" in types_of(content, "decoder") or content["model"].get(
        "byte_fallback"
    ):
        for i, token in enumerate(ordinary):
            if match := BYTE.fullmatch(token):
                texts[i] = bytes.fromhex(match[1])

    return texts


def types_of(content: Mapping[str, Any], part: str) -> set[str | None]:
    """The types of a part of a tokenizer.json, such as its decoder, and of the parts of it."""
    whole = content.get(part) or {}
    names = {whole.get("type")}
    for key in ("decoders", "pretokenizers", "normalizers"):
        names |= {each.get("type") for each in whole.get(key, [])}

    return names


def is_byte_level(content: Mapping[str, Any]) -> bool:
    """Whether tokens are written in the `byte_alphabet`. A file without a decoder does not say so,
    but its other parts do."""
    parts = ("decoder", "pre_tokenizer", "normalizer")
    return any("ByteLevel" in types_of(content, part) for part in parts)


def suitable_decoder(content: Mapping[str, Any], ordinary: Sequence[str]) -> Any:
    """A decoder for a tokenizer.json that has none; None if nothing in the file tells how its
    tokens are joined."""
    from tokenizers import decoders

    model = content["model"]
    prefix = model.get("continuing_subword_prefix")
    suffix = model.get("end_of_word_suffix")
    if any(token.startswith(METASPACE) for token in ordinary):
        return decoders.Metaspace(prepend_scheme="never")
    if prefix:
        return decoders.WordPiece(prefix, cleanup=False)
    if suffix:
        return decoders.BPEDecoder(suffix)

    return None


def decoded_alone(tokenizer: Any, n: int) -> list[str]:
    """The text of each of the first `n` tokens: what it adds between two others, if possible."""
    texts = tokenizer.decode_batch([[i] for i in range(n)], skip_special_tokens=False)
    anchor = next((i for i, text in enumerate(texts) if text.isalpha()), None)
    if anchor is None:
        return texts

    before = texts[anchor]
    after = tokenizer.decode([anchor, anchor], skip_special_tokens=False)[len(before) :]
    sequences = [[anchor, i, anchor] for i in range(n)]
    for i, text in enumerate(
        tokenizer.decode_batch(sequences, skip_special_tokens=False)
    ):
        rest = text.removeprefix(before)
        if text.startswith(before) and rest.endswith(after):
            texts[i] = rest.removesuffix(after)

    return texts


def byte_alphabet() -> list[str]:
    """The characters by which byte-level tokenizers write the bytes 0 to 255 (Radford et al. 2019,
    GPT-2)."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return [
        chr(byte) if byte in shown else chr(256 + hidden.index(byte))
        for byte in range(256)
    ]
