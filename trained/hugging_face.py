"""Writes a trained run, or a saved classifier, as a folder for Hugging Face's transformers.

The model becomes a ModernBERT; with n-gram embeddings, and for a classifier, a ModernBERT with the
code of `model.modeling_folio`. Text that the run does not know becomes `[UNK]`; if the run has no
such token, it is embedded as `[MASK]` and never predicted.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from torch.nn import functional as F
from transformers import (
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from configs.keys import ConfigError
from configs.references import path_and_name
from data.tasks.task import CHARACTER
from data.tokens.custom import CustomVocabulary
from data.tokens.subwords import SubwordVocabulary
from data.tokens.surfaces import byte_alphabet
from data.vocabulary import MASK, PAD, UNK, Vocabulary
from model import modeling_folio
from model.modern import NORM_EPS, ROTARY_BASE
from runs.files import write_atomically
from trained.load import Trained, check_scores
from trained.model_card import card
from trained.saved_classifier import SavedClassifier

NEVER = -1e4  # the bias of an added `[UNK]` in the decoder
EMBEDDING = "model.embeddings.tok_embeddings.weight"
ROTARY = {"rope_type": "default", "rope_theta": ROTARY_BASE}
NAMES = {  # Folio's names of weights -> Hugging Face's
    r"encoder\.embedding\.": "model.embeddings.tok_embeddings.",
    r"encoder\.embedding_norm\.": "model.embeddings.norm.",
    r"encoder\.ngrams\.": "model.embeddings.ngrams.",
    r"encoder\.layers\.(\d+)\.attention_norm\.": r"model.layers.\1.attn_norm.",
    r"encoder\.layers\.(\d+)\.attention\.query_key_value\.": r"model.layers.\1.attn.Wqkv.",
    r"encoder\.layers\.(\d+)\.attention\.output\.": r"model.layers.\1.attn.Wo.",
    r"encoder\.layers\.(\d+)\.feed_forward_norm\.": r"model.layers.\1.mlp_norm.",
    r"encoder\.layers\.(\d+)\.feed_forward\.input_gate\.": r"model.layers.\1.mlp.Wi.",
    r"encoder\.layers\.(\d+)\.feed_forward\.output\.": r"model.layers.\1.mlp.Wo.",
    r"encoder\.final_norm\.": "model.final_norm.",
    r"head\.0\.": "head.dense.",
    r"head\.2\.": "head.norm.",
    r"decoder_bias$": "decoder.bias",
}


def export(trained: Trained, folder: Path) -> None:
    """Write config, weights, tokenizer and a model card into a new folder.

    Raises ConfigError if transformers cannot express the model, and RuntimeError if the scores
    differ.
    """
    logging.disable_progress_bar()
    model: Any = hugging_face_model(trained)
    model.save_pretrained(folder)
    if isinstance(trained.vocabulary, CustomVocabulary):
        path, name = path_and_name(trained.values["data.tokens"])
        shutil.copy(path, folder)
        print(
            f"the folder has no tokenizer.json: encode texts with {name} of its {path.name}"
        )
    else:
        tokenizer(trained.vocabulary, trained.longest).save_pretrained(folder)

    write_atomically(folder / "README.md", card(trained).encode())
    check_scores(trained, lambda ids, mask: model(ids, attention_mask=mask).logits)


def hugging_face_model(trained: Trained) -> PreTrainedModel:
    """The model in Hugging Face's classes, with the same weights. Raises ConfigError if they cannot
    express it."""
    if hasattr(trained.model, "hugging_face"):
        return own_hugging_face_model(trained)
    settings = settings_of(trained)
    weights = renamed(trained)
    auto = "AutoModelForMaskedLM"
    auto_map = modeling_folio.AUTO_MAP
    if isinstance(trained, SavedClassifier):
        kind = "Token" if trained.kind == CHARACTER else "Sequence"
        auto = f"AutoModelFor{kind}Classification"
        auto_map = {name: auto_map[name] for name in ("AutoConfig", auto)}
        settings["id2label"] = dict(enumerate(trained.labels))
        settings["label2id"] = {label: i for i, label in enumerate(trained.labels)}
        weights |= trained.classifier.output.state_dict(prefix="output.")

    if auto == "AutoModelForMaskedLM" and trained.encoder.ngrams is None:
        model: PreTrainedModel = ModernBertForMaskedLM(ModernBertConfig(**settings))
    else:
        config = modeling_folio.FolioConfig(**settings)
        config.auto_map = auto_map
        model = getattr(modeling_folio, auto.replace("AutoModel", "Folio"))(config)
        model.register_for_auto_class(auto)  # copies the code beside the weights

    model.load_state_dict(weights)

    return model.eval()


def own_hugging_face_model(trained: Trained) -> PreTrainedModel:
    """The model that a model of the user's own returns as its export."""
    architecture = trained.values["model.architecture"]
    if not trained.takes_mask:
        raise ConfigError(
            f"model.architecture={architecture}: an export needs forward(inputs, positions=None,"
            " attention_mask=None)"
        )

    model = trained.model.hugging_face()  # type: ignore[operator]
    if not isinstance(model, PreTrainedModel):
        raise ConfigError(
            f"model.architecture={architecture}: hugging_face() must return a PreTrainedModel,"
            f" not {type(model).__name__}"
        )

    return model.eval()


def settings_of(trained: Trained) -> dict[str, Any]:
    """The arguments of ModernBERT's config; with n-gram embeddings, those of FolioConfig.

    Raises ConfigError if they cannot express the model.
    """
    values = trained.values
    vocabulary = trained.vocabulary
    n_layers = values["model.n_layers"]
    unknown_token = vocabulary.unknown_token
    settings = {
        "vocab_size": vocabulary.n_tokens + 1,
        "hidden_size": values["model.d_model"],
        "num_hidden_layers": n_layers,
        "num_attention_heads": values["model.n_heads"],
        "intermediate_size": values["model.d_ff"],
        "max_position_embeddings": trained.longest,
        "norm_eps": NORM_EPS,
        "layer_types": ["full_attention"] * n_layers,
        "rope_parameters": dict.fromkeys(
            ("full_attention", "sliding_attention"), ROTARY
        ),
        "classifier_pooling": "mean",  # there is no [CLS]
        "pad_token_id": vocabulary.padding_token,
        "mask_token_id": vocabulary.mask_token,
        "unk_token_id": vocabulary.n_tokens if unknown_token is None else unknown_token,
        **dict.fromkeys(
            ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
        ),
    }
    ngrams = trained.encoder.ngrams
    if ngrams is not None:
        # [n_ngrams, 2 * reach + 1]; weights bring their own n-grams
        is_member = ngrams.factors.T != 0
        reach = is_member.shape[1] // 2
        settings["ngrams"] = [
            (row.nonzero().flatten() - reach).tolist() for row in is_member
        ]
        settings["ngram_rows"] = values["model.ngram_rows"]
        settings["ngram_parts"] = ngrams.n_parts

    return settings


def renamed(trained: Trained) -> dict[str, Tensor]:
    """The model's weights by Hugging Face's names, with a row for an added `[UNK]`."""
    weights: dict[str, Tensor] = {}
    for name, weight in trained.model.state_dict().items():
        (new,) = [
            re.sub(old, new, name) for old, new in NAMES.items() if re.match(old, name)
        ]
        weights[new] = weight

    embedding = weights[EMBEDDING]
    embedding = torch.cat([embedding, embedding[trained.vocabulary.mask_token, None]])
    weights[EMBEDDING] = embedding
    weights["decoder.weight"] = embedding
    weights["decoder.bias"] = F.pad(weights["decoder.bias"], (0, 1), value=NEVER)

    return weights


def tokenizer(vocabulary: Vocabulary, longest: int) -> PreTrainedTokenizerFast:
    """A tokenizer with the ids of the vocabulary."""
    special = vocabulary.special_tokens
    each = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    if isinstance(vocabulary, SubwordVocabulary):
        new = Tokenizer.from_str(json.dumps(vocabulary.tokenizer))
        new.add_special_tokens([*special, UNK])  # in the order of the ids
    elif vocabulary.tokens == "bytes":
        new = _words([*byte_alphabet(), *special, UNK])
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        new.pre_tokenizer = pre_tokenizers.Sequence([byte_level, each])
        new.decoder = decoders.ByteLevel()
    elif vocabulary.is_characters:
        new = _words([*vocabulary.ordinary, *special, UNK])
        new.pre_tokenizer = each
        new.decoder = decoders.Fuse()
    else:
        raise ConfigError(
            "a tokenizer of your own cannot become one of transformers: use --to onnx"
        )

    return PreTrainedTokenizerFast(
        tokenizer_object=new,
        mask_token=MASK,
        pad_token=PAD,
        unk_token=UNK,
        model_max_length=longest,
        clean_up_tokenization_spaces=False,
    )


def _words(tokens: list[str]) -> Tokenizer:
    ids = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return Tokenizer(models.WordLevel(ids, unk_token=UNK))
