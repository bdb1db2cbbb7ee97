"""YAML from any source, parsed within bounds: plain scalars, lists and mappings, without aliases,
tags and repeats."""

from typing import Any

import yaml

LONGEST = 400  # characters of a number; Python refuses to print integers of more than 4,300 digits


class _Loader(yaml.SafeLoader):
    """PyYAML's loader without its unbounded and Python-specific parts."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        # A few aliases can stand for more values than memory holds. Tags ask for types that no key
        # has.
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
            raise yaml.composer.ComposerError(
                None, None, "aliases and tags are not accepted", event.start_mark
            )
        node = super().compose_node(parent, index)
        if (
            isinstance(node, yaml.ScalarNode)
            and node.tag.endswith((":int", ":float"))
            and len(node.value) > LONGEST
        ):
            raise yaml.composer.ComposerError(None, None, "a number is too long", event.start_mark)
        if isinstance(node, yaml.MappingNode):  # PyYAML would keep the last of several equal keys
            keys = set[str]()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in keys:
                    raise yaml.composer.ComposerError(
                        None, None, f"the key {key.value} stands twice", key.start_mark
                    )
                keys.add(key.value)
        return node


def parse_yaml(text: str) -> Any:
    """The value of a YAML text. Raises ValueError with one line."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{error.problem}{line}") from error
    # ValueError: 2024-02-30
    except (yaml.YAMLError, ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error
