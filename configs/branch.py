"""A branch of the config tree."""

from typing import Any

from labml.configs import BaseConfigs


class Branch(BaseConfigs):
    """A branch of the config tree, such as `model.*`. labml builds it and passes the root."""

    def __init__(self, root: BaseConfigs):
        super().__init__()
        self._root = root

    def root(self) -> Any:
        """The whole tree, `configs.experiment.Configs`: the other branches, and the parts of the
        run."""
        return self._root
