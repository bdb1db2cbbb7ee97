"""Checkpoints of Hugging Face's transformers: the keys that continue one, its model and its tokens.

A checkpoint is a folder with config.json, a tokenizer and weights. A run keeps a copy without the
weights, from which its model and its tokens are built.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labml.configs import option

from configs.keys import ConfigError
from configs.model import ModelConfigs, ngrams_of
from data.tokens import HUB_NAME
from runs.errors import InputError, first_line
from runs.files import write_json
from runs.run_folder import RunFolder

if TYPE_CHECKING:
    from torch import nn

    from data.tokens.extension import Extended
    from data.vocabulary import Vocabulary

PREFIX = "hf:"
ARCHITECTURE = "huggingface"
FOLDER = "huggingface"  # in a run
# these lack the pieces of an extended tokenizer.json
VOCABULARIES = ("vocab.*", "merges.txt", "*.model")
KEPT = ("config.json", "*token*.json", "*.py", *VOCABULARIES)
WEIGHTS = ("*.safetensors*", "*.bin*")  # with the index of shards
RECIPE = {
    "training.compile": False,  # gains nothing on a CPU, and takes a minute
    "training.optimizer": "adamw",
    "training.learning_rate": 3e-4,
    "training.stages": [{"until": 1.0, "seq_len": 128}],
}


def library() -> Any:
    """The package `transformers`. Raises ConfigError if it is not installed."""
    # transformers imports torchvision if it is installed; the one that labml_nn installs needs
    # torch's CUDA build.
    sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ConfigError(
            "transformers is not installed: pip install -r requirements-export.txt"
        ) from error
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return transformers


@dataclass(frozen=True)
class Checkpoint:
    """A folder of transformers. Its parts raise ConfigError if they cannot be read."""

    folder: Path
    trust_remote_code: bool = False  # whether to run the code in the folder
    extended: "Extended | None" = None  # its tokenizer.json with more tokens

    def load(self, kind: str, **options: Any) -> Any:
        """The object that transformers' class `kind` loads from the folder."""
        try:
            return getattr(library(), kind).from_pretrained(
                self.folder, trust_remote_code=self.trust_remote_code, **options
            )
        except InputError:
            raise
        except Exception as error:  # whatever a damaged file raises
            reason = first_line(error)
            if "trust_remote_code" in str(error):
                reason = "set model.trust_remote_code=true if you trust its own code"
            raise ConfigError(
                f"{PREFIX}{self.folder}: {kind} cannot read it ({reason})"
            ) from error

    @cached_property
    def config(self) -> Any:
        config = self.load("AutoConfig")
        auto = "AutoModelForMaskedLM"
        is_own = auto in getattr(config, "auto_map", {})
        if not is_own and type(config) not in library().MODEL_FOR_MASKED_LM_MAPPING:
            raise ConfigError(
                f"{PREFIX}{self.folder}: {config.model_type} is not a model of {auto}"
            )
        return config

    @cached_property
    def shape(self) -> dict[str, Any]:
        """The keys of the model that the checkpoint decides."""
        config = self.config
        d_ff = getattr(config, "intermediate_size", None)
        try:
            return {
                "model.d_model": config.hidden_size,
                "model.n_layers": config.num_hidden_layers,
                "model.n_heads": config.num_attention_heads,
                "model.d_ff": d_ff or getattr(config, "hidden_dim", config.hidden_size),
            }
        except AttributeError as error:
            raise ConfigError(f"{PREFIX}{self.folder}: {first_line(error)}") from error

    @cached_property
    def content(self) -> dict[str, Any]:
        """Its tokenizer.json, or the extended one."""
        from data.tokens.subwords import content_of

        if self.extended:
            return self.extended.content
        return json.loads(content_of(str(self.folder)))

    @cached_property
    def special_rows(self) -> dict[str, int]:
        """Its special tokens by Folio's names, with their rows in the embedding."""
        from data.tokens.checkpoint import special_rows
        from data.vocabulary import CLS, MASK, PAD, SEP

        tokenizer = self.load("AutoTokenizer")
        plain = tokenizer("a", add_special_tokens=False)["input_ids"]
        whole = tokenizer("a")["input_ids"]
        around = (whole[0], whole[-1]) if len(whole) == len(plain) + 2 else (None, None)
        rows: Any = (tokenizer.pad_token_id, tokenizer.mask_token_id, *around)
        if None in rows or len({*rows}) < len(rows):
            raise ConfigError(
                f"{PREFIX}{self.folder}: its tokenizer needs tokens for padding and for masks, and"
                " must put one before and another one after each text"
            )
        named = dict(zip((PAD, MASK, CLS, SEP), rows, strict=True))
        return special_rows(self.content, named, self.config.vocab_size)

    def check_rows(self) -> None:
        """Raise ConfigError if the embedding lacks rows, before tokens are added."""
        from data.tokens.subwords import ids_of

        n_rows = self.config.vocab_size
        if max(ids_of(self.content).values()) >= n_rows:
            raise ConfigError(
                f"{PREFIX}{self.folder}: its tokenizer has tokens beyond the {n_rows:,} rows of its"
                " embedding: call resize_token_embeddings(len(tokenizer)), and save it again"
            )

    def untrained(self) -> Any:
        """Its model with initial weights."""
        auto = library().AutoModelForMaskedLM
        return auto.from_config(
            self.config, dtype="float32", trust_remote_code=self.trust_remote_code
        )

    def rows(self, vocabulary: "Vocabulary") -> list[int]:
        """The row of each id of a vocabulary in the embedding, `[n_tokens]`."""
        from data.tokens.checkpoint import rows_of

        return rows_of(vocabulary, self.content, self.special_rows)


def initial_keys(name: str, overridden: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run that continues the checkpoint called `name`, `hf:` left out: a folder, or
    OWNER/NAME on the Hub. Raises ConfigError if the user has set one that the checkpoint decides.
    """
    folder = folder_of(name)
    trust = overridden.get("model.trust_remote_code", False)
    checkpoint = Checkpoint(folder, trust)
    decided = {
        "model.architecture": ARCHITECTURE,
        "data.tokens": str(folder),
        "initial_weights": f"{PREFIX}{folder}",
        "objective.nsp": False,
        "objective.sop": False,
        **checkpoint.shape,
    }
    for key, value in decided.items():
        if overridden.get(key, value) != value:
            raise ConfigError(
                f"{key}={overridden[key]}: the checkpoint has {value}: leave out {key}"
            )
    checkpoint.check_rows()
    return RECIPE | decided


def folder_of(name: str) -> Path:
    """The folder of a checkpoint, which is downloaded if it is a name on the Hub. Raises
    ConfigError."""
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder.resolve()
    if folder.exists() or not HUB_NAME.fullmatch(name):
        raise ConfigError(f"{PREFIX}{name}: found no config.json of transformers there")
    try:
        from huggingface_hub import snapshot_download

        safe, pickled = WEIGHTS
        found = Path(snapshot_download(name, allow_patterns=[*KEPT, safe]))
        if not [*found.glob(safe)]:
            snapshot_download(name, allow_patterns=[*KEPT, pickled])
        return found
    except Exception as error:  # no package, network or such name
        raise ConfigError(
            f"{PREFIX}{name}: no folder, and not on the Hub ({first_line(error)})"
        ) from error


@option(ModelConfigs.checkpoint)
def checkpoint(c: ModelConfigs) -> Checkpoint:
    """The checkpoint that the keys name, with the tokens that they add. Raises ConfigError if its
    shape is not that of the keys."""
    root = c.root()
    plain = Checkpoint(Path(root.data.tokens), c.trust_remote_code)
    if not (plain.folder / "config.json").is_file():
        raise ConfigError(
            f"model.architecture={ARCHITECTURE} needs a checkpoint: start with --init-from hf:FOLDER"
        )
    for key, value in plain.shape.items():
        if root.value_of(key) != value:
            raise ConfigError(f"{root.name_of(key)}: the checkpoint has {value}")
    n = root.data.extend_vocabulary
    if not n:
        return plain
    from data.tokens.extension import extended

    text = root.data.loaded.training
    n_rows = plain.config.vocab_size
    return replace(plain, extended=extended(plain.content, text, n, n_rows))


@option(ModelConfigs.architecture, ARCHITECTURE)
def hugging_face(c: ModelConfigs) -> "nn.Module":
    """Any `AutoModelForMaskedLM`, with the shape and the tokens of its checkpoint."""
    from configs.model_contract import check_length
    from data.vocabulary import CLS, SEP

    checkpoint = c.checkpoint
    library()
    from model.hugging_face import HuggingFaceModel, SpecialTokens, untrained

    vocabulary = c.root().data.vocabulary
    inner = untrained(
        checkpoint.config,
        c.n_tokens,
        c.dropout,
        checkpoint.trust_remote_code,
    )
    d_embedding: Any = inner.get_input_embeddings().embedding_dim
    special = SpecialTokens(
        vocabulary.padding_token, vocabulary.id_of(CLS), vocabulary.id_of(SEP)
    )
    model = HuggingFaceModel(inner, special, ngrams_of(c, d_embedding))
    check_length(model, c.root())
    return model


def keep(run: RunFolder, values: Mapping[str, Any], model: Any) -> None:
    """Copy the checkpoint of a run into it, without the weights; `model` is the branch of the
    config tree."""
    kept = run.path / FOLDER
    if values["model.architecture"] != ARCHITECTURE or kept.exists():
        return
    source = model.checkpoint
    kept.mkdir()
    for pattern in set(KEPT).difference(VOCABULARIES if source.extended else ()):
        for path in source.folder.glob(pattern):
            shutil.copy(path, kept)
    write_json(kept / "tokenizer.json", source.content)
    config = json.loads((kept / "config.json").read_text())
    write_json(kept / "config.json", config | {"vocab_size": model.n_tokens}, indent=2)


def kept_keys(run: RunFolder) -> dict[str, Any]:
    """The keys that name the checkpoint that a run keeps, with all of its tokens; none for other
    runs."""
    kept = run.path / FOLDER
    if not kept.is_dir():
        return {}
    return {"data.tokens": str(kept.resolve()), "data.extend_vocabulary": 0}
