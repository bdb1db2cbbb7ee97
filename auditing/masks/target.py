"""Calls a masking target of any kind with windows of ids, and checks that what comes back has the
right form."""

import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from auditing.errors import TargetError, describe, raised
from auditing.masks.texts import Masked, Text
from auditing.masks.tokens import TokenIds, attribute, tokenizer_of
from auditing.statistics import Array

# Of the inputs and the labels in a dict, in the order in which they are looked for; 0 and 1: in a
# tuple.
INPUT_KEYS = ("input_ids", "inputs", "input", "x", "src", "tokens", 0)
LABEL_KEYS = (
    "labels",
    "label",
    "masked_lm_labels",
    "mlm_labels",
    "lm_labels",
    "targets",
    "target",
    "y",
    "tgt",
    1,
)
ARRAYS = (list, torch.Tensor, np.ndarray)
# The keys of a collator's examples, in the order in which they are tried.
COMMON = ("input_ids", "attention_mask", "special_tokens_mask")
EXAMPLE_KEYS = (COMMON, (*COMMON, "offset_mapping"), (*COMMON, "word_ids"), COMMON[:2], COMMON[:1])


@dataclass(frozen=True)
class Target:
    """A masking function and how it is called. `keys` are those of an example or a batch dict."""

    function: Any
    kind: str
    keys: tuple[str, ...] = ()
    last: list[tuple[Any, Array]] = field(
        default_factory=list
    )  # what the last call returned, and a copy

    def __call__(self, text: Text, rows: Array, tokens: TokenIds) -> Masked:
        """Mask some windows of a text. Raises TargetError with the call and what came back."""
        argument = self.argument(text, rows, tokens)
        examples = (
            argument if isinstance(argument, list) and self.kind == "collator" else [argument]
        )
        # The caller's own tensors or lists, whatever the target does to the dict around them.
        held = [each["input_ids"] if isinstance(each, Mapping) else each for each in examples]
        before = [matrix(ids).copy() for ids in held]
        call = f"called with {'x = ' if self.kind == 'tensor' else ''}{describe(argument)}"
        process = os.getpid()
        try:
            returned = self.function(argument)
        except Exception as error:
            raise TargetError(f"{call}, the target raised {raised(error)}") from error
        finally:
            if os.getpid() != process:  # a child that the target forked: it must not go on
                os._exit(0)
        is_modified = not all(
            np.array_equal(matrix(ids), old) for ids, old in zip(held, before, strict=True)
        )
        is_reused = not all(np.array_equal(matrix(part), copy) for part, copy in self.last)
        shape = (
            (len(rows), text.ids.shape[1]) if self.kind in ("tensor", "array", "lists") else None
        )
        answer = read(
            returned,
            shape,
            tokens.padding or 0,
            f"{call}, the target returned {describe(returned)}",
        )
        parts = parts_of(returned)[0].values()
        self.last[:] = [
            (part, matrix(part).copy())
            for part in parts
            if isinstance(part, torch.Tensor | np.ndarray)
        ]
        return replace(answer, extras=answer.columns, is_modified=is_modified, is_reused=is_reused)

    def argument(self, text: Text, rows: Array, tokens: TokenIds) -> Any:
        """A tensor, array or lists `[batch, width]`, a dict of tensors, or a list of examples, by
        the kind."""
        ids, real = text.ids[rows], text.real[rows]
        plain = {
            "tensor": lambda: torch.tensor(ids, device="cpu"),
            "array": ids.copy,
            "lists": ids.tolist,
        }
        if self.kind in plain:
            return plain[self.kind]()
        special = np.isin(ids, [id for id in tokens.special if id != tokens.unknown])
        columns = {
            "input_ids": ids,
            "attention_mask": real.astype(int),
            "special_tokens_mask": special.astype(int),
        }
        known = {"offset_mapping": text.offsets, "word_ids": text.words}
        columns |= {name: column[rows] for name, column in known.items() if column is not None}
        present = {key: columns[key] for key in self.keys if key in columns}
        if self.kind == "dict":
            return {key: torch.tensor(column, device="cpu") for key, column in present.items()}
        if len(self.keys) > len(COMMON):  # collators pad neither offsets nor words
            real = np.ones_like(real)
        return [
            {key: column[i][real[i]].tolist() for key, column in present.items()}
            for i in range(len(rows))
        ]


def matrix(value: Any, fill: int = 0) -> Array:
    """A tensor, array or list as an array; rows of different lengths are filled up."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        return (
            tensor.float() if tensor.is_floating_point() else tensor
        ).numpy()  # NumPy has no bfloat16
    if isinstance(value, list | tuple) and value and np.ndim(value[0]):
        rows = [matrix(row) for row in value]
        n = max(len(row) for row in rows)
        return np.stack(
            [
                np.pad(r, [(0, n - len(r))] + [(0, 0)] * (r.ndim - 1), constant_values=fill)
                for r in rows
            ]
        )
    return np.asarray(value)


def parts_of(batch: Any) -> tuple[dict[Any, Any], Any, Any]:
    """The parts of a dict or tuple by key or number, and the keys of its inputs and labels, None if
    it lacks them."""
    given = (
        enumerate(batch)
        if isinstance(batch, tuple | list)
        else batch
        if isinstance(batch, Mapping)
        else ()
    )
    parts = dict(given)
    inputs, labels = (
        next((key for key in keys if key in parts), None) for keys in (INPUT_KEYS, LABEL_KEYS)
    )
    return parts, inputs, labels


def read(returned: Any, shape: tuple[int, int] | None, padding: int, line: str) -> Masked:
    """The arrays that a target returned. `shape` is the shape that inputs must have, None for any.
    The message of a TargetError begins with `line`."""
    parts, *keys = parts_of(returned)
    if None in keys:
        wanted = (
            "a dict with input_ids and labels"
            if shape is None
            else "the two tensors (inputs, labels)"
        )
        lacks = f", which lacks {'input_ids' if keys[0] is None else 'labels'}"
        raise TargetError(
            f"{line}{lacks if isinstance(returned, Mapping) else f' instead of {wanted}'}"
        )
    found: dict[str, Array] = {}
    for name, key, fill in zip(("inputs", "labels"), keys, (padding, -100), strict=True):
        part = parts.pop(key)
        if not isinstance(part, ARRAYS):
            raise TargetError(f"{line}: {name} is not a tensor")
        if shape and isinstance(part, torch.Tensor) and part.device.type != "cpu":
            raise TargetError(f"{line}: {name} is on another device than the argument")
        found[name] = matrix(part, fill)
        wanted = (
            list(shape or found["inputs"].shape)
            if shape or found["inputs"].ndim == 2
            else "[batch, seq_len]"
        )
        if found[name].ndim != 2 or found[name].shape != (shape or found["inputs"].shape):
            raise TargetError(f"{line}: the shape of {name} is not {wanted}")
        if found[name].dtype.kind not in "iu":
            raise TargetError(f"{line}: {name} holds {found[name].dtype} instead of integers")
    arrays = {key: matrix(part) for key, part in parts.items() if isinstance(part, ARRAYS)}
    named = {
        f"item {key + 1}" if isinstance(key, int) else str(key): array
        for key, array in arrays.items()
    }
    extras = {name: array for name, array in named.items() if array.dtype.kind in "biuf"}
    inputs, labels = (part.astype(np.int64) for part in found.values())
    return Masked(inputs, labels, extras, str(found["labels"].dtype))


def resolve(imported: Any) -> Any:
    """The masking function: the target itself, or what it returns if it takes no arguments. Raises
    TargetError."""
    if not callable(imported):
        how = (
            ": name a function, as file.py:function"
            if inspect.ismodule(imported)
            else ", which cannot be called"
        )
        raise TargetError(f"the target has the type {type(imported).__name__}{how}")
    try:
        parameters = inspect.signature(imported).parameters
    except (TypeError, ValueError):  # built-in functions have no signature
        return imported
    if parameters and inspect.isclass(imported):
        raise TargetError(
            f"the target {imported.__name__} is a class: name an instance, or a function that makes one"
        )
    made = imported if parameters else imported()
    if not callable(made):
        line = f"the target takes no arguments and returned {describe(made)} instead of a masker"
        raise TargetError(
            f"{line}: `folio-audit loader` audits batches" if isinstance(made, Iterable) else line
        )
    return made


def candidates(function: Any, kind: str | None) -> list[Target]:
    """The ways to call a masker, the most likely first."""
    plain = ["tensor", "array", "lists"]
    kinds = (
        [kind]
        if kind
        else ["collator", "dict", *plain]
        if tokenizer_of(function)
        else [*plain, "dict", "collator"]
    )
    keys = [EXAMPLE_KEYS[1]] if attribute(function, ["whole_word_mask"]) else []  # it needs offsets
    return [
        Target(function, each, names)
        for each in kinds
        for names in ([()] if each in plain else [*keys, *EXAMPLE_KEYS])
    ]
