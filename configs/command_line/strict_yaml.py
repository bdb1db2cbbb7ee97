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
        if (
            isinstance(event, yaml.AliasEvent)
            or getattr(event, "tag", None) is not None
        ):
            raise _error("aliases and tags are not accepted", event)
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode) and node.tag.endswith((":int", ":float")):
            if len(node.value) > LONGEST:
                raise _error("a number is too long", node)
        elif isinstance(
            node, yaml.MappingNode
        ):  # PyYAML would keep the last of several equal keys
            keys = dict[str, yaml.Node]()
            for key, _ in node.value:
                if keys.setdefault(str(key.value), key) is not key:
                    raise _error(f"the key {key.value} stands twice", key)
        return node


def _error(message: str, place: yaml.Event | yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=place.start_mark)


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
