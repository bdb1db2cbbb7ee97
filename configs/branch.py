"""A branch of the config tree, and the seeds of its random draws."""

import re
import zlib
from typing import Any

import numpy as np
from labml.configs import BaseConfigs

from distributed.launch import n_started

REFERENCE = re.compile(r".+\.py:[^\W\d]\w*", re.DOTALL)  # to the user's own code


class Branch(BaseConfigs):
    """A branch of the config tree, such as `model.*`. labml builds it and passes the root."""

    def __init__(self, root: BaseConfigs):
        super().__init__()
        self._root = root

    def root(self) -> Any:
        """The whole tree, `configs.experiment.Configs`: the other branches, and the parts of the
        run."""
        return self._root


def is_reference(value: Any) -> bool:
    """Whether a value names the user's own code, `file.py:name`."""
    return isinstance(value, str) and REFERENCE.fullmatch(value) is not None


def is_sharded(root: Any) -> bool:
    """Whether each of several processes has a part of the model."""
    return root.training.parallel == "fsdp" and n_started() > 1


def derived_seed(seed: int, stream: str) -> int:
    """The seed of the named stream. Streams and neighboring seeds are statistically independent."""
    sequence = np.random.SeedSequence([seed, zlib.crc32(stream.encode())])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
