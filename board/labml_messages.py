"""Checks the messages of labml's own clients and of its page, which labml-app stores without looking at them.

A value of the wrong type would otherwise be stored, and break the page for every run.
"""

import json
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runs.schema import MISSING, STATUSES, checked, is_number

CHECKED = re.compile(r"/api/v1/([^/]+/track|run/[^/]+)")


def is_series(value: Any) -> bool:
    """Whether a value is a series: as many steps as values, all of them numbers."""
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(key), list) and all(map(is_drawable, value[key])) for key in ("step", "value"))
        and len(value["step"]) == len(value["value"])
    )


def is_drawable(value: Any) -> bool:
    """Whether a value is a number; labml's clients send losses that are not finite too."""
    return isinstance(value, float) or is_number(value)


def is_dict_of(kind: Any) -> Any:
    """A check for dictionaries: `kind` is a check for each value."""
    return lambda value: isinstance(value, dict) and all(map(kind, value.values()))


def is_config(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and "computed" in value


TEXTS = ("name", "comment", "note", "python_file", "computer", "stdout", "stderr", "logger")
MESSAGE = dict.fromkeys(TEXTS, (str, None, MISSING)) | {
    "tags": ([str], None, MISSING),
    "configs": (is_dict_of(is_config), MISSING),
    "track": (is_dict_of(is_series), MISSING),
    "status": ({"status": lambda value: value in STATUSES, "time": (is_number, None, MISSING)}, None, MISSING),
}


class CheckedMessages:
    """An ASGI application around labml-app's that answers 400 to messages with values of the wrong type."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST" or not CHECKED.fullmatch(scope["path"]):
            return await self.app(scope, receive, send)
        body = await Request(scope, receive).body()
        try:
            content = json.loads(body)
            for message in content if isinstance(content, list) else [content]:
                checked(message, MESSAGE, "the message")
        except (ValueError, RecursionError) as error:
            return await JSONResponse({"error": str(error)}, 400)(scope, receive, send)

        async def receive_again() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        return await self.app(scope, receive_again, send)
