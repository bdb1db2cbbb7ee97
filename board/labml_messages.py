"""Checks the messages of labml's own clients and of its page, which labml-app stores without looking at them.

A value of the wrong type would otherwise be stored, and break the page for every run.
"""

import json
import math
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runs.schema import MISSING, STATUSES, checked, is_number

CHECKED = re.compile(r"/api/v1/([^/]+/(track|computer)|run/[^/]+)")
COUNTS = ("rank", "world_size", "main_rank")  # in the query
LARGEST_COUNT = 10_000


def is_series(value: Any) -> bool:
    """Whether a value is a series: as many finite steps as values, at least one."""
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(key), list) for key in ("step", "value"))
        and len(value["step"]) == len(value["value"]) > 0
        and all(map(is_number, value["step"]))
        and all(map(is_loss, value["value"]))
    )


def is_loss(value: Any) -> bool:
    """Whether a value is a number; labml's clients also send losses that are not finite."""
    return is_number(value) or (isinstance(value, float) and not math.isfinite(value))


def is_dict_of(kind: Any) -> Any:
    """A check for dictionaries: `kind` is a check for each value."""
    return lambda value: isinstance(value, dict) and all(map(kind, value.values()))


def is_config(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and "computed" in value


TEXTS = ("name", "comment", "note", "python_file", "computer", "commit", "commit_message", "stdout", "stderr", "logger")
NAMES = ("tags", "favourite_configs", "favorite_configs", "selected_configs")
MESSAGE: dict[str, Any] = {
    **dict.fromkeys(TEXTS, (str, None, MISSING)),
    **{name: ([str], None, MISSING) for name in NAMES},
    "repo_remotes": ([str], str, None, MISSING),
    "pid": (int, None, MISSING),
    "start_step": (int, str, None, MISSING),
    "configs": (is_dict_of(is_config), MISSING),
    "track": (is_dict_of(is_series), MISSING),
    "status": ({"status": lambda value: value in STATUSES, "time": (is_number, None, MISSING)}, None, MISSING),
}


def with_checked_messages(app: ASGIApp) -> ASGIApp:
    """An ASGI application around labml-app's that answers 400 to messages with values of the wrong type."""

    async def checked_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST" or not CHECKED.fullmatch(scope["path"]):
            return await app(scope, receive, send)
        request = Request(scope, receive)
        try:
            for name in COUNTS:
                count = request.query_params.get(name, "0")
                if not count.isdecimal() or int(count[:20]) > LARGEST_COUNT:
                    raise ValueError(f"{name} is wrong ({count[:40]!r})")
            body = await request.body()
            content = json.loads(body)
            for message in content if isinstance(content, list) else [content]:
                checked(message, MESSAGE, "the message")
        except (ValueError, RecursionError) as error:
            return await JSONResponse({"error": str(error)}, 400)(scope, receive, send)
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive_again() -> Message:
            return next(messages, None) or await receive()

        return await app(scope, receive_again, send)

    return checked_app
