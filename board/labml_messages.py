"""Checks the messages of labml's own clients and of its page, which labml-app stores without
looking at them.

A value of the wrong type would otherwise be stored, and break the page for every run.
"""

import math
import re
from typing import Any

from starlette.requests import Request

from runs.schema import MISSING, STATUS, checked, is_number, matches

CHECKED = re.compile(r"/api/v1/([^/]+/(track|computer)|(run|session)/[^/]+)|/track")
COUNTS = ("rank", "world_size", "main_rank")  # in the query
LARGEST_COUNT = 10_000
LONGEST_NAME = 10_000  # characters; lists of runs send them with each refresh
MAX_SERIES = 200  # per run; labml's page needs milliseconds for each
# per message; labml-app needs 50 us for each, and answers nobody else meanwhile
MAX_POINTS = 20_000


def is_series(value: Any) -> bool:
    """Whether a value is a series: as many finite steps as values, at least one."""
    return (
        matches(value, {"step": [float], "value": [is_loss]})
        and len(value["step"]) == len(value["value"]) > 0
    )


def is_loss(value: Any) -> bool:
    """Whether a value is a number; labml's clients also send losses that are not finite."""
    return is_number(value) or (isinstance(value, float) and not math.isfinite(value))


def is_name(value: Any) -> bool:
    """Whether a value is a text of a length that lists may show."""
    return isinstance(value, str) and len(value) <= LONGEST_NAME


def are_series(value: Any) -> bool:
    """Whether a value is a dict of series, neither too many nor too long."""
    return (
        matches(value, {str: is_series})
        and len(value) <= MAX_SERIES
        and all(map(is_name, value))
        and sum(len(series["step"]) for series in value.values()) <= MAX_POINTS
    )


NAMES = (
    "name",
    "comment",
    "note",
    "python_file",
    "computer",
    "commit",
    "commit_message",
)
TEXTS = ("stdout", "stderr", "logger")
LISTS = ("tags", "favourite_configs", "favorite_configs", "selected_configs")
MESSAGE = {
    **dict.fromkeys(NAMES, (is_name, None, MISSING)),
    **dict.fromkeys(TEXTS, (str, None, MISSING)),
    **dict.fromkeys(LISTS, ([is_name], None, MISSING)),
    "repo_remotes": ([is_name], is_name, None, MISSING),
    "pid": (int, None, MISSING),
    "start_step": (int, str, None, MISSING),
    "configs": ({str: {"name": str, "computed": object}}, MISSING),
    "track": (are_series, MISSING),
    "status": (
        {"status": STATUS["status"], "time": (float, None, MISSING)},
        None,
        MISSING,
    ),
}


async def check_message(request: Request) -> None:
    """Raise ValueError if a request is a message of labml's clients or its page with wrong values."""
    if request.method == "POST" and CHECKED.fullmatch(request.scope["path"]):
        for name in COUNTS:
            count = request.query_params.get(name, "0")
            if not count.isdecimal() or int(count[:20]) > LARGEST_COUNT:
                raise ValueError(f"{name} is wrong ({count[:40]!r})")
        content = await request.json()
        for message in content if isinstance(content, list) else [content]:
            checked(message, MESSAGE, "the message")
