"""Calls a masking target of any kind with windows of ids, and checks that what comes back has the right form."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from auditing.errors import TargetError, describe, raised
from auditing.masks.texts import Text
from auditing.masks.tokens import TokenIds, attribute

KINDS = ("tensor", "collator", "dict")
INPUT_KEYS = ("input_ids", "inputs", "input", "tokens")
LABEL_KEYS = ("labels", "label", "masked_lm_labels", "mlm_labels", "lm_labels", "targets", "target")
# The keys of a collator's examples, in the order in which they are tried.
EXAMPLE_KEYS: tuple[tuple[str, ...], ...] = (
    ("input_ids", "attention_mask", "special_tokens_mask"),
    ("input_ids", "attention_mask", "special_tokens_mask", "offset_mapping"),
    ("input_ids", "attention_mask", "special_tokens_mask", "word_ids"),
    ("input_ids", "attention_mask"),
    ("input_ids",),
)


@dataclass(frozen=True)
class Masked:
    """The inputs and labels that a target made of some windows."""

    inputs: np.ndarray  # [batch, width] int64
    labels: np.ndarray  # [batch, width] int64
    attention: np.ndarray | None  # [batch, width], if the target returns an attention mask
    is_modified: bool  # whether the target changed its argument's ids in place
    dtype: str  # of the labels


@dataclass(frozen=True)
class Target:
    """A masking function and how it is called. `keys` are those of an example or a batch dict."""

    function: Any
    kind: str
    keys: tuple[str, ...] = ()

    def __call__(self, text: Text, rows: np.ndarray, tokens: TokenIds) -> Masked:
        """Mask some windows of a text. Raises TargetError with the call and what came back."""
        argument = self.argument(text, rows, tokens)
        held = ids_of(argument)  # the caller's own tensors or lists, whatever the target does to the dict around them
        before = [array_of(ids) for ids in held]
        call = f"called with {'x = ' if self.kind == 'tensor' else ''}{describe(argument)}"
        try:
            returned = self.function(argument)
        except Exception as error:
            raise TargetError(f"{call}, the target raised {raised(error)}") from error
        is_modified = not all(np.array_equal(array_of(ids), old) for ids, old in zip(held, before, strict=True))
        line = f"{call}, the target returned {describe(returned)}"
        inputs, labels, attention = parts(returned, self.kind, line)
        shape = (len(rows), text.ids.shape[1])
        for name, part in (("inputs", inputs), ("labels", labels)):
            check_form(name, part, shape, self.kind, line)
        return Masked(
            array_of(inputs).astype(np.int64),
            array_of(labels).astype(np.int64),
            None if attention is None else array_of(attention),
            is_modified,
            dtype_of(labels),
        )

    def argument(self, text: Text, rows: np.ndarray, tokens: TokenIds) -> Any:
        """A tensor `[batch, width]`, a dict of tensors, or a list of examples, by the kind of target."""
        ids = text.ids[rows]
        if self.kind == "tensor":
            return torch.tensor(ids)
        special = np.isin(ids, [id for id in tokens.special if id != tokens.unknown])
        columns = {
            "input_ids": ids,
            "attention_mask": text.real[rows].astype(np.int64),
            "special_tokens_mask": special.astype(np.int64),
            "offset_mapping": None if text.offsets is None else text.offsets[rows],
            "word_ids": None if text.words is None else text.words[rows],
        }
        present = {key: columns[key] for key in self.keys if columns[key] is not None}
        if self.kind == "dict":
            return {key: torch.tensor(column) for key, column in present.items()}
        if "offset_mapping" in present or "word_ids" in present:  # collators pad neither
            return [{key: column[i].tolist() for key, column in present.items()} for i in range(len(rows))]
        real = text.real[rows]
        return [{key: column[i][real[i]].tolist() for key, column in present.items()} for i in range(len(rows))]


def array_of(value: Any) -> np.ndarray:
    """A copy of a tensor, array or list as an array."""
    return value.detach().cpu().numpy().copy() if isinstance(value, torch.Tensor) else np.array(value)


def ids_of(argument: Any) -> list[Any]:
    """The tensors or lists of ids in an argument."""
    if isinstance(argument, list):
        return [example["input_ids"] for example in argument]
    return [argument["input_ids"] if isinstance(argument, Mapping) else argument]


def parts(returned: Any, kind: str, line: str) -> tuple[Any, Any, Any]:
    """Inputs, labels and the attention mask, or None, of what a target returned. Raises TargetError."""
    if kind == "tensor":
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise TargetError(f"{line} instead of the two tensors (inputs, labels)")
        return returned[0], returned[1], None
    if not isinstance(returned, Mapping):
        raise TargetError(f"{line} instead of a dict with input_ids and labels")
    inputs = next((returned[key] for key in INPUT_KEYS if key in returned), None)
    labels = next((returned[key] for key in LABEL_KEYS if key in returned), None)
    if inputs is None or labels is None:
        raise TargetError(f"{line}, which lacks {'labels' if labels is None else 'input_ids'}")
    return inputs, labels, returned.get("attention_mask")


def check_form(name: str, part: Any, shape: tuple[int, int], kind: str, line: str) -> None:
    """Raises TargetError unless a part is an integer tensor or array on the CPU with the windows' shape.

    A collator may pad its batch beyond the longest window.
    """
    if isinstance(part, list):
        part = np.array(part)
    if not hasattr(part, "shape"):
        raise TargetError(f"{line}: {name} is no tensor")
    if isinstance(part, torch.Tensor) and part.device.type != "cpu":
        raise TargetError(f"{line}: {name} is on another device than the argument")
    is_padded = kind == "collator" and len(part.shape) == 2 and part.shape[1] > shape[1]
    if tuple(part.shape) != shape and not (is_padded and part.shape[0] == shape[0]):
        raise TargetError(f"{line}: the shape of {name} is not {list(shape)}")
    if "int" not in dtype_of(part):
        raise TargetError(f"{line}: {name} holds {dtype_of(part)} instead of integers")


def dtype_of(part: Any) -> str:
    return str(getattr(part, "dtype", "int64")).removeprefix("torch.")


def resolve(imported: Any) -> Any:
    """The masking function: the target itself, or what it returns if it takes no arguments. Raises TargetError."""
    if not callable(imported):
        raise TargetError(f"the target has the type {type(imported).__name__}, which cannot be called")
    try:
        parameters = inspect.signature(imported).parameters.values()
    except (TypeError, ValueError):  # built-in functions have no signature
        return imported
    if parameters and inspect.isclass(imported):
        raise TargetError(f"the target {imported.__name__} is a class: name an instance, or a function that makes one")
    if parameters:
        return imported
    made = imported()
    if not callable(made):
        raise TargetError(f"the target takes no arguments and returned {describe(made)} instead of a masker")
    return made


def candidates(function: Any, kind: str | None) -> list[Target]:
    """The ways to call a masker, the most likely first."""
    has_tokenizer = attribute(function, ["tokenizer"]) is not None
    kinds = [kind] if kind else ["collator", "dict", "tensor"] if has_tokenizer else ["tensor", "dict", "collator"]
    keys = EXAMPLE_KEYS
    if attribute(function, ["whole_word_mask"]):  # needs offsets
        keys = (EXAMPLE_KEYS[1], *EXAMPLE_KEYS)
    return [Target(function, each, names) for each in kinds for names in ([()] if each == "tensor" else keys)]
