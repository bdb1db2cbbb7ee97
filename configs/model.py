"""The model. To add an architecture, write a function like `modern`, with `@option` above it."""

from typing import TYPE_CHECKING, Annotated, Any

from labml.configs import option

from configs.branch import Branch
from configs.keys import ConfigError, Key

if TYPE_CHECKING:
    from torch import nn

    from model.ngrams import NgramEmbedding


class ModelConfigs(Branch):
    """Keys `model.*`. Reading `architecture` gives the model with that name."""

    architecture: Annotated[Any, Key("the model to train", reference=True)] = "modern"
    d_model: Annotated[int, Key("size of the hidden vectors", low=2, high=16_384)] = 128
    n_layers: Annotated[int, Key("number of layers", low=1, high=256)] = 6
    n_heads: Annotated[
        int,
        Key("attention heads per layer; they must divide d_model", low=1, high=1_024),
    ] = 4
    d_ff: Annotated[
        int, Key("hidden size of the feed-forward layers", low=1, high=65_536)
    ] = 256
    dropout: Annotated[float, Key("dropout probability", low=0, high=0.99)] = 0.0
    ngrams: Annotated[
        int,
        Key(
            "length of the longest embedded n-grams, 2 to 4; below: none", low=0, high=4
        ),
    ] = 0
    ngram_rows: Annotated[int, Key("rows of the n-grams' table", low=1, high=2**28)] = (
        262_144
    )
    ngram_parts: Annotated[
        int,
        Key("parts of a vector; with 2, half of the n-grams fill each", low=1, high=2),
    ] = 1
    ngram_dropout: Annotated[
        float,
        Key("share of the n-grams that are left out in training", low=0, high=0.99),
    ] = 0.0

    trust_remote_code: Annotated[
        bool, Key("run the code that a checkpoint of Hugging Face brings")
    ] = False

    n_tokens: int
    checkpoint: Any  # `configs.hugging_face.Checkpoint`
    ngram_embedding: "NgramEmbedding | None"


@option(ModelConfigs.n_tokens)
def n_tokens(c: ModelConfigs) -> int:
    return c.root().data.vocabulary.n_tokens


@option(ModelConfigs.architecture)
def modern(c: ModelConfigs) -> "nn.Module":
    """Rotary positions, GeGLU, pre-norm and a tied head, as in Hugging Face's ModernBERT; and
    n-gram embeddings."""
    from model import MaskedLanguageModel, ModernEncoder

    if c.d_model // c.n_heads % 2:
        raise ConfigError(
            f"model.d_model={c.d_model} / model.n_heads={c.n_heads} is odd: rotary positions need heads"
            " of even size"
        )
    make_encoder: Any = ModernEncoder
    make_model: Any = MaskedLanguageModel
    if c.root().objective.pairs:
        from model.pair_model import PairEncoder, PairModel

        make_encoder = PairEncoder
        make_model = PairModel
    encoder = make_encoder(
        n_tokens=c.n_tokens,
        d_model=c.d_model,
        n_layers=c.n_layers,
        n_heads=c.n_heads,
        d_ff=c.d_ff,
        dropout=c.dropout,
        ngrams=c.ngram_embedding,
    )
    return make_model(encoder)


@option(ModelConfigs.ngram_embedding)
def ngram_embedding(c: ModelConfigs) -> "NgramEmbedding | None":
    """The n-gram embeddings that the keys ask for, for any architecture."""
    return ngrams_of(c, c.d_model)


def ngrams_of(c: ModelConfigs, d_model: int) -> "NgramEmbedding | None":
    """N-gram embeddings of `d_model` numbers."""
    from model.ngrams import NGRAMS, NgramEmbedding

    ngrams = [ngram for ngram in NGRAMS if len(ngram) <= c.ngrams]
    if not ngrams:
        return None
    return NgramEmbedding(
        n_tokens=c.n_tokens,
        d_model=d_model,
        ngrams=ngrams,
        n_rows=c.ngram_rows,
        n_parts=c.ngram_parts,
        dropout=c.ngram_dropout,
    )
