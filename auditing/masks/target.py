"""Calls a masking target of any kind with windows of ids, and checks that what comes back has the
right form."""

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from auditing.errors import TargetError, describe, raised
from auditing.masks.texts import Masked, Text
from auditing.masks.tokens import TokenIds, attribute, tokenizer_of
from auditing.statistics import Array

# The keys of the inputs and the labels in a dict, in the order in which they are looked for. The
# numbers are their places in a tuple.
INPUT_KEYS = ("input_ids", "inputs", "input", "x", "src", "tokens", 0)
LABEL_KEYS = ("labels", "label", "masked_lm_labels", "mlm_labels", "lm_labels")
LABEL_KEYS += ("targets", "target", "y", "tgt", 1)
# kinds of targets whose argument is `[batch, width]` itself
PLAIN = ("tensor", "array", "lists")
ARRAYS = (list, torch.Tensor, np.ndarray)
# The keys of a collator's examples, in the order in which they are tried.
COMMON = ("input_ids", "attention_mask", "special_tokens_mask")
EXAMPLE_KEYS = (
    COMMON,
    (*COMMON, "offset_mapping"),
    (*COMMON, "word_ids"),
    COMMON[:2],
    COMMON[:1],
)


@dataclass(frozen=True)
class Target:
    """A masking function and how it is called. `keys` are those of an example or a batch dict."""

    function: Any
    kind: str
    keys: tuple[str, ...] = ()
    # What the last call returned, and a copy.
    last: list[tuple[Any, Array]] = field(default_factory=list)

    def __call__(self, text: Text, rows: Array, tokens: TokenIds) -> Masked:
        """Mask some windows of a text. Raises TargetError with the call and what came back."""
        argument = self.argument(text, rows, tokens)
        # The caller's own tensors or lists, whatever the target does to the dict around them.
        examples = argument if self.kind == "collator" else [argument]
        held = [
            each["input_ids"] if isinstance(each, Mapping) else each
            for each in examples
        ]
        before = [matrix(ids).copy() for ids in held]
        call = (
            f"called with {'x = ' if self.kind == 'tensor' else ''}{describe(argument)}"
        )
        process = os.getpid()

        try:
            returned = self.function(argument)
        except Exception as error:
            raise TargetError(f"{call}, the target raised {raised(error)}") from error
        finally:
            if (
                os.getpid() != process
            ):  # a child that the target forked: it must not go on
                os._exit(0)

        is_modified = any_differs(zip(held, before, strict=True))
        is_reused = any_differs(self.last)
        shape = (len(rows), text.ids.shape[1]) if self.kind in PLAIN else None
        line = f"{call}, the target returned {describe(returned)}"
        answer = read(returned, shape, tokens.padding or 0, line)
        self.last.clear()
        for part in parts_of(returned)[0].values():
            if isinstance(part, torch.Tensor | np.ndarray):
                self.last.append((part, matrix(part).copy()))

        return replace(
            answer, extras=answer.columns, is_modified=is_modified, is_reused=is_reused
        )

    def argument(self, text: Text, rows: Array, tokens: TokenIds) -> Any:
        """A tensor, array or lists `[batch, width]`, a dict of tensors, or a list of examples, by
        the kind."""
        ids = text.ids[rows]
        real = text.real[rows]
        if self.kind == "tensor":
            return torch.tensor(ids, device="cpu")
        if self.kind == "array":
            return ids.copy()
        if self.kind == "lists":
            return ids.tolist()
        special = np.isin(ids, [id for id in tokens.special if id != tokens.unknown])
        columns = {
            "input_ids": ids,
            "attention_mask": real.astype(int),
            "special_tokens_mask": special.astype(int),
        }
        if text.offsets is not None:
            columns["offset_mapping"] = text.offsets[rows]
        if text.words is not None:
            columns["word_ids"] = text.words[rows]
        present = {key: columns[key] for key in self.keys if key in columns}
        if self.kind == "dict":
            return {
                key: torch.tensor(column, device="cpu")
                for key, column in present.items()
            }
        if len(self.keys) > len(COMMON):  # collators pad neither offsets nor words
            real = np.ones_like(real)
        examples = []
        for i in range(len(rows)):
            examples.append(
                {key: column[i][real[i]].tolist() for key, column in present.items()}
            )
        return examples


def any_differs(pairs: Iterable[tuple[Any, Array]]) -> bool:
    """Whether any value differs from a copy of it."""
    return not all(np.array_equal(matrix(value), copy) for value, copy in pairs)


def matrix(value: Any, fill: int = 0) -> Array:
    """A tensor, array or list as an array; rows of different lengths are filled up."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        if tensor.is_floating_point():  # NumPy has no bfloat16
            tensor = tensor.float()
        return tensor.numpy()
    if isinstance(value, list | tuple) and value and np.ndim(value[0]):
        rows = [matrix(row) for row in value]
        longest = max(len(row) for row in rows)
        padded = []
        for row in rows:
            widths = [(0, longest - len(row))] + [(0, 0)] * (row.ndim - 1)
            padded.append(np.pad(row, widths, constant_values=fill))
        return np.stack(padded)

    return np.asarray(value)


def parts_of(batch: Any) -> tuple[dict[Any, Any], Any, Any]:
    """The parts of a dict or tuple by key or number, and the keys of its inputs and labels, None if
    it lacks them."""
    parts: dict[Any, Any] = {}
    if isinstance(batch, tuple | list):
        parts = dict(enumerate(batch))
    elif isinstance(batch, Mapping):
        parts = dict(batch)
    inputs = next((key for key in INPUT_KEYS if key in parts), None)
    labels = next((key for key in LABEL_KEYS if key in parts), None)
    return parts, inputs, labels


def read(
    returned: Any, shape: tuple[int, int] | None, padding: int, line: str
) -> Masked:
    """The arrays that a target returned. `shape` is the shape that inputs must have, None for any.
    The message of a TargetError begins with `line`."""
    parts, key_of_inputs, key_of_labels = parts_of(returned)
    if key_of_inputs is None or key_of_labels is None:
        missing = "input_ids" if key_of_inputs is None else "labels"
        if isinstance(returned, Mapping):
            raise TargetError(f"{line}, which lacks {missing}")
        wanted = (
            "the two tensors (inputs, labels)"
            if shape
            else "a dict with input_ids and labels"
        )
        raise TargetError(f"{line} instead of {wanted}")

    for name, key in (("inputs", key_of_inputs), ("labels", key_of_labels)):
        device = getattr(parts[key], "device", None)
        if shape and isinstance(device, torch.device) and device.type != "cpu":
            raise TargetError(f"{line}: {name} is on another device than the argument")

    inputs = ids_of(parts.pop(key_of_inputs), shape, padding, line, "inputs")
    labels = ids_of(parts.pop(key_of_labels), inputs.shape, -100, line, "labels")
    extras = {}

    for key, part in parts.items():
        if isinstance(part, ARRAYS):
            array = matrix(part)
            if array.dtype.kind in "biuf":
                extras[f"item {key + 1}" if isinstance(key, int) else str(key)] = array

    dtype = str(labels.dtype)
    return Masked(inputs.astype(np.int64), labels.astype(np.int64), extras, dtype)


def ids_of(
    part: Any, shape: tuple[int, ...] | None, fill: int, line: str, name: str
) -> Array:
    """Inputs or labels as an array of integers. Raises TargetError if they are of another form."""
    if not isinstance(part, ARRAYS):
        raise TargetError(f"{line}: {name} is not a tensor")
    ids = matrix(part, fill)
    if ids.ndim != 2 or ids.shape != (shape or ids.shape):
        wanted = list(shape) if shape else "[batch, seq_len]"
        raise TargetError(f"{line}: the shape of {name} is not {wanted}")
    if ids.dtype.kind not in "iu":
        raise TargetError(f"{line}: {name} holds {ids.dtype} instead of integers")
    return ids


def resolve(imported: Any) -> Any:
    """The masking function: the target itself, or what it returns if it takes no arguments.

    Raises TargetError if neither is a masking function.
    """
    if not callable(imported):
        how = ", which cannot be called"
        if inspect.ismodule(imported):
            how = ": name a function, as file.py:function"
        raise TargetError(f"the target has the type {type(imported).__name__}{how}")

    try:
        parameters = inspect.signature(imported).parameters
    except (TypeError, ValueError):  # built-in functions have no signature
        return imported

    if parameters:
        if inspect.isclass(imported):
            line = f"the target {imported.__name__} is a class"
            raise TargetError(f"{line}: name an instance, or a function that makes one")
        return imported

    made = imported()
    if not callable(made):
        line = f"the target takes no arguments and returned {describe(made)} instead of a masker"
        if isinstance(made, Iterable):
            line += ": `folio-audit loader` audits batches"
        raise TargetError(line)

    return made


def candidates(function: Any, kind: str | None) -> Iterator[Target]:
    """The ways to call a masker, the most likely first."""
    if kind:
        kinds = [kind]
    elif tokenizer_of(function):
        kinds = ["collator", "dict", *PLAIN]
    else:
        kinds = [*PLAIN, "dict", "collator"]

    for each in kinds:
        if each in PLAIN:
            yield Target(function, each)
            continue
        if attribute(function, ["whole_word_mask"]):  # it needs offsets
            yield Target(function, each, EXAMPLE_KEYS[1])
        for keys in EXAMPLE_KEYS:
            yield Target(function, each, keys)
