"""Checks the messages of labml's own clients and of its page, which labml-app stores without looking at them.

A value of the wrong type would otherwise be stored, and break the page for every run.
"""

import math
import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from runs.schema import MISSING, STATUSES, checked, is_number, matches

CHECKED = re.compile(r"/api/v1/([^/]+/(track|computer)|run/[^/]+)")
COUNTS = ("rank", "world_size", "main_rank")  # in the query
LARGEST_COUNT = 10_000


def is_series(value: Any) -> bool:
    """Whether a value is a series: as many finite steps as values, at least one."""
    is_whole = matches(value, {"step": [float], "value": [is_loss]})
    return is_whole and len(value["step"]) == len(value["value"]) > 0


def is_loss(value: Any) -> bool:
    """Whether a value is a number; labml's clients also send losses that are not finite."""
    return is_number(value) or (isinstance(value, float) and not math.isfinite(value))


TEXTS = ("name", "comment", "note", "python_file", "computer", "commit", "commit_message", "stdout", "stderr", "logger")
NAMES = ("tags", "favourite_configs", "favorite_configs", "selected_configs")
MESSAGE: dict[str, Any] = {
    **dict.fromkeys(TEXTS, (str, None, MISSING)),
    **{name: ([str], None, MISSING) for name in NAMES},
    "repo_remotes": ([str], str, None, MISSING),
    "pid": (int, None, MISSING),
    "start_step": (int, str, None, MISSING),
    "configs": ({str: {"name": str, "computed": object}}, MISSING),
    "track": ({str: is_series}, MISSING),
    "status": ({"status": lambda value: value in STATUSES, "time": (float, None, MISSING)}, None, MISSING),
}


async def check_message(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Middleware that answers 400 to messages with values of the wrong type."""
    if request.method == "POST" and CHECKED.fullmatch(request.scope["path"]):
        try:
            for name in COUNTS:
                count = request.query_params.get(name, "0")
                if not count.isdecimal() or int(count[:20]) > LARGEST_COUNT:
                    raise ValueError(f"{name} is wrong ({count[:40]!r})")
            content = await request.json()
            for message in content if isinstance(content, list) else [content]:
                checked(message, MESSAGE, "the message")
        except (ValueError, RecursionError) as error:
            return JSONResponse({"error": str(error)}, 400)
    return await answer(request)
