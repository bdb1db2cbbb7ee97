"""Attacks on the server. Each is raw bytes over a socket, because a client library would correct
them first."""

import json
import random
import re
import socket
from pathlib import Path

import pytest

from tests.board.conftest import message

SECRETS = (
    b"root:",
    b"labml_app_db",
    b"def create_app",
    b"SQLite format",
    b"[project]",
    b"raceback",
)


def ask(dashboard, request, *, is_whole=True):
    """Send bytes and read to the end. Returns the status (0 if there is none) and the answer.

    A request that may be incomplete is followed by the end of the connection, or its answer would
    never come.
    """
    with socket.create_connection(
        ("127.0.0.1", dashboard.port), timeout=10
    ) as connection:
        answer = b""
        try:
            connection.sendall(request)
            if not is_whole:
                connection.shutdown(socket.SHUT_WR)
            while block := connection.recv(1 << 16):
                answer += block
        except ConnectionError:
            pass  # the server may refuse a request before it is complete

    status = re.match(rb"HTTP/\S+ (\d+)", answer)
    return int(status[1]) if status else 0, answer


def get(path, *headers, method="GET", host="127.0.0.1", body=""):
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        "Connection: close",
        *headers,
    ]
    if body:
        lines.append(f"Content-Length: {len(body)}")

    return "\r\n".join([*lines, "", body]).encode("latin-1")


def send(dashboard, path, *headers, **others):
    """The status and the answer of a request that `get` makes."""
    return ask(dashboard, get(path, *headers, **others))


@pytest.fixture(scope="module", autouse=True)
def stalled(shared_dashboard):
    """Connections whose headers do not arrive. They last ten seconds, in which the other tests run."""
    whole = b"GET /favicon.ico HTTP/1.1\r\nHost: localhost\r\n\r\n"
    connections = []
    for content in (b"", whole[:20], whole + whole[:20]):
        address = ("127.0.0.1", shared_dashboard.port)
        connections.append(socket.create_connection(address, timeout=30))
        connections[-1].sendall(content)

    return connections


# Of dots and slashes: both, encoded twice, overlong UTF-8, and backslashes.
ENCODINGS = (
    ("", ""),
    ("..", "%2e%2e"),
    ("/..", "%2f.."),
    ("../", "..%2f"),
    ("..", "%252e%252e"),
    ("..", "%c0%ae%c0%ae"),
    ("/", "%2f"),
    ("../", "..\\"),
    ("../", "..%5c"),
    ("../", "....//"),
)
TARGETS = [
    "/../../../../../../../../etc/passwd",
    "/js/../../../../../../../../../etc/passwd",
    "//etc/passwd",
    "/vendor/../../../../../../../etc/passwd",
    "/vendor/fonts/webfonts/../../../../../../etc/passwd",
    "/api/../../../../etc/passwd",
    "/api/v1/../../../../etc/passwd",
    "/etc/passwd",
    "/../../../pyproject.toml",
    "/../settings.py",
    "/../flask_app.py",
    "/static/../db/__init__.py",
    "/dashboard.sqlite3",
]


@pytest.mark.parametrize("target", TARGETS)
def test_no_path_leads_out_of_the_pages_own_files(shared_dashboard, target):
    forms = [
        f"/{target.replace(*encoding).removeprefix('/')}" for encoding in ENCODINGS
    ]
    for form in [
        *forms,
        f"{target}%00.js",
        f"/file:{target}",
        f"{target}?x=/etc/passwd",
    ]:
        status, answer = send(shared_dashboard, form)
        assert status in (200, 400, 403, 404, 405), form
        assert not any(secret in answer for secret in SECRETS), form

        if status == 200:  # an address within the page: only the page itself
            assert (
                b"<title>labml.ai</title>" in answer
                or b"<title>Folio</title>" in answer
            ), form


HOSTS = [
    "evil.example",
    "evil.example:80",
    "127.0.0.1.evil.example",
    "localhost@evil.example",
]
HOSTS += ["0.0.0.0", "[::]", "10.0.0.1", "", "127.0.0.1\r\nHost: evil.example"]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    "path",
    ["/", "/runs", "/js/bundle.min.js", "/api/v1/runs/null", "/%61pi/v1/runs/null"],
)
def test_a_foreign_host_is_refused(shared_dashboard, host, path):
    """A page whose host name resolves to 127.0.0.1 sends this (DNS rebinding)."""
    status, answer = send(shared_dashboard, path, host=host)
    assert status in (400, 403), answer[:200]


ORIGINS = [
    "http://evil.example",
    "https://127.0.0.1",
    "null",
    "http://127.0.0.1:1",
    "file://",
]
REQUESTS = [
    "POST /api/folio/runs/0123456789",
    "PUT /api/v1/runs",
    "POST /api/v1/default/track",
    "GET /runs",
    "OPTIONS /api/v1/runs/null",
]


@pytest.mark.parametrize("origin", [*ORIGINS, "https://app.labml.ai"])
@pytest.mark.parametrize("request_line", REQUESTS)
def test_a_foreign_origin_is_refused(shared_dashboard, origin, request_line):
    method, path = request_line.split()
    status, answer = send(
        shared_dashboard, path, f"Origin: {origin}", method=method, body="{}"
    )

    assert status == 403
    assert b"access-control-allow" not in answer.lower()


def test_the_page_works_under_every_name_of_this_machine(shared_dashboard):
    """This includes SSH tunnels, whose local port differs."""
    own = f"127.0.0.1:{shared_dashboard.port}"
    for host in ("127.0.0.1", "localhost", own, "LOCALHOST:8000", "[::1]:5005"):
        for path in ("/runs", "/api/v1/runs/null"):
            status, _ = send(
                shared_dashboard, path, f"Origin: http://{host}", host=host
            )
            assert status == 200


def check_answers(dashboard):
    for path in ("/runs", "/api/v1/runs/null"):
        assert send(dashboard, path)[0] == 200


@pytest.mark.parametrize(
    "path", ["/api/folio/runs/0123456789", "/track?run_uuid=0123456789"]
)
def test_a_large_body_is_refused_however_it_is_sent(shared_dashboard, path):
    block = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    chunked = (
        get(path, "Transfer-Encoding: chunked", method="POST")
        + 200 * block
        + b"0\r\n\r\n"
    )
    status, answer = ask(shared_dashboard, chunked)

    assert status in (0, 413), answer[:200]  # 0: cut off before it was all sent

    for length in ("999999999", "-1", "1e9", "0x10", "9" * 5000):
        status, _ = send(
            shared_dashboard, path, f"Content-Length: {length}", method="POST"
        )
        assert status in ([413] if length == "999999999" else [400, 413])

    check_answers(shared_dashboard)


RUN = "/api/folio/runs/0123456789"
TRACK = f"/api/v1/default/track?run_uuid={'d' * 16}&labml_version=0.5.3"


def with_row(line):
    """A message whose metrics.jsonl has this line."""
    content = message({})
    content["pieces"]["metrics.jsonl"]["text"] = f"{line}\n"
    return json.dumps(content)


def with_series(n_series, n_points):
    series = {"step": [1] * n_points, "value": [1] * n_points}
    return json.dumps({"track": dict.fromkeys(map(str, range(n_series)), series)})


@pytest.mark.parametrize(
    ("status", "request_line", "body"),
    [
        (500, "POST /api/v1/run/unknown-run", "{}"),
        (400, "POST /api/v1/default/track?run_uuid=0123456789&labml_version=x", "[1]"),
        (400, "POST /api/v1/default/track?run_uuid=0123456789&rank=x", "{"),
        (404, f"PUT {RUN}/hidden", '{"hidden": 3}'),
        (400, f"PUT {RUN}/other", "{}"),
        (404, f"DELETE {RUN}", ""),
        (404, f"GET {RUN}?log.txt=x", ""),
        (404, "POST /api/folio/try/0123456789", '{"text": "a_"}'),
        (400, "POST /api/v1/metrics/unknown-run", "{}"),
        (400, f"POST {RUN}", with_row('{"step": "x"}')),
        (400, f"POST {RUN}", '{"pieces": {"metrics.jsonl": {"from": "x"}}}'),
        (400, f"POST {RUN}", '{"about": {"configs": [], "explicit": 0}}'),
        (400, f"POST {RUN}", with_row('{"step": 1e999}')),
        (400, f"POST {RUN}", with_row(f'{{"step": 1, "{"x" * 10_001}": 1}}')),
        (400, f"POST {RUN}", '{"status": {"status": {}}, "log": 3}'),
        (405, "POST /api/folio/runs/..%2f..%2fetc", "{}"),
        (404, f"PUT {RUN}/knobs", '{"learning_rate_factor": 1e308}'),
        # labml-app cannot read these, or would take long for them.
        (400, "PUT /api/v1/runs", "[]"),
        (400, "PUT /api/v1/runs", "{"),
        (
            400,
            "POST /api/v1/default/track?run_uuid=abcdef0123456789&rank=0",
            '{"name":"x"}',
        ),
        (400, f"POST {TRACK}&rank=x", '{"name":"x"}'),
        (400, f"POST {TRACK}&world_size=1000000000", '{"name":"x"}'),
        (400, f"POST {TRACK}&main_rank=-1", '{"name":"x"}'),
        (400, f"POST {TRACK}", json.dumps({"name": "x" * 10_001})),
        (400, f"POST {TRACK}", with_series(1, 20_001)),
        (400, f"POST {TRACK}", with_series(201, 1)),
    ],
)
def test_a_wrong_request_is_refused_without_a_traceback(
    shared_dashboard, status, request_line, body
):
    method, path = request_line.split()
    answered, answer = send(shared_dashboard, path, method=method, body=body)

    assert answered == status
    assert not re.search(rb'Traceback|File \\"|site-packages|\.py', answer)
    assert not any("Traceback" in line for line in shared_dashboard.output)


@pytest.mark.parametrize("path", [RUN, "/api/folio/try/0123456789", f"{TRACK}&rank=0"])
@pytest.mark.parametrize("body", ["step=3", "{", "\xff\xfe", "[" * 100_000])
def test_a_body_that_is_not_json_is_called_so(shared_dashboard, path, body):
    status, answer = send(shared_dashboard, path, method="POST", body=body)
    assert status == 400
    assert answer.endswith(b'{"error":"the body is not JSON"}')


METHODS = [
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "X" * 300,
    "G\0T",
    "",
]
PATHS = [
    *TARGETS,
    "/runs",
    "/api/v1/runs/null",
    RUN,
    "/" + "a" * 5000,
    "*",
    "http://x/y",
]
LENGTHS = ("Content-Length", "Transfer-Encoding", "Expect", "Upgrade")
NAMES = [*LENGTHS, "Host", "Origin", "Range", "Cookie", "X" * 2000]
VALUES = [
    "127.0.0.1",
    "evil.example",
    "-1",
    "chunked",
    "bytes=0-",
    "websocket",
    "100-continue",
]
VALUES += ["\xff\xfe", "9" * 30, ""]
INTERFACE = f"""
/api/v1/run/0123456789 /api/v1/metrics/0123456789 /api/v1/logs/std_logger/0123456789
/api/v1/runs /api/v1/run/0123456789/add /api/v1/runs/archive /api/v1/user /api/v1/auth/user
{RUN} {RUN}/knobs /api/folio/try/0123456789
""".split()
KEYS = [
    "pieces",
    "metrics.jsonl",
    "from",
    "to",
    "text",
    "about",
    "configs",
    "status",
    "run_uuids",
    "page",
    "user",
    "step",
    "name",
]
SIMPLE = [
    "\ud800",
    float("nan"),
    None,
    True,
    -1,
    2**70,
    1e308,
    "",
    "\0",
    "../../etc/passwd",
    "$key",
]
SIMPLE += [{"$key": 1}, {"$array": ["x"]}]


class Generator(random.Random):
    """Generates requests, of which most are wrong."""

    def junk(self):
        return self.randbytes(self.randrange(60))

    def value(self, depth=0):
        if depth == 2 or self.random() < 0.6:
            return self.choice(SIMPLE)

        values = {key: self.value(depth + 1) for key in self.sample(KEYS, 3)}
        return values | {"list": [self.value(2)]}

    def valid_with_a_wrong_body(self):
        method = self.choice(["POST", "PUT"])
        return get(self.choice(INTERFACE), method=method, body=json.dumps(self.value()))

    def lines(self):
        """A request, and whether it is complete and asks to close the connection. Any other is
        broken off after it was sent."""
        version = self.choice(["1.1", "1.0", "9.9", ""])
        lines = [f"{self.choice(METHODS)} {self.choice(PATHS)} HTTP/{version}"]
        if self.random() < 0.85:
            lines.append("Host: localhost")

        names = self.choices(NAMES, k=self.randrange(4))
        lines += [f"{name}: {self.choice(VALUES)}" for name in names]
        is_whole = version == "1.1" and not {*names} & {*LENGTHS}

        if is_whole:
            lines.append("Connection: close")

        request = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return request if is_whole else request + self.junk(), is_whole


def test_a_thousand_generated_requests_leave_it_answering(shared_dashboard):
    generator = Generator(0)
    for _ in range(1_000):
        kind = generator.random()
        if kind < 0.3:
            _, answer = ask(shared_dashboard, generator.valid_with_a_wrong_body())
        elif kind < 0.4:
            _, answer = ask(shared_dashboard, generator.junk(), is_whole=False)
        else:
            request, is_whole = generator.lines()
            _, answer = ask(shared_dashboard, request, is_whole=is_whole)

        assert b"Traceback" not in answer
        assert b"root:" not in answer

    check_answers(shared_dashboard)


def test_a_cross_site_request_without_an_origin_reaches_no_interface(shared_dashboard):
    """For example a picture on another site whose address is one of labml-app's routes that write."""
    # a link to the page is allowed
    for path, status in (("/api/v1/computer/0123456789", 403), ("/runs", 200)):
        assert send(shared_dashboard, path, "Sec-Fetch-Site: cross-site")[0] == status


def test_files_of_a_folder_that_does_not_carry_the_runs_uuid_are_not_read(
    shared_dashboard, make_run
):
    """A message may name any folder of this machine, and one that cannot be looked at."""
    run = make_run()
    folder = str(run.path)
    other = "f" * 16
    for uuid, named, n_losses in (
        (run.path.name, folder, 3),
        ("e" * 16, folder, 0),
        (other, f"{'x' * 5_000}/{other}", 0),
    ):
        about = {"about": run.about() | {"folder": named}, "heard": 0.0}
        content = json.dumps(message({"step": 1}) | about)
        path = f"/api/folio/runs/{uuid}"

        assert send(shared_dashboard, path, method="POST", body=content)[0] == 200

        status, answer = send(shared_dashboard, path)
        assert (status, answer.count(b'loss.valid\\":')) == (200, n_losses)

        if not n_losses:
            address = f"/api/folio/try/{uuid}"
            status, _ = send(
                shared_dashboard, address, method="POST", body='{"text": "a_"}'
            )
            assert status == 400


def test_it_listens_on_the_loopback_address_only(shared_dashboard):
    connections = Path("/proc/net/tcp").read_text()
    listening = re.findall(
        rf"(\w+):{shared_dashboard.port:04X} \w+:\w+ 0A", connections
    )

    assert listening == ["0100007F"]


@pytest.mark.slow
def test_connections_whose_headers_do_not_arrive_are_closed(stalled):
    for connection in stalled:
        while connection.recv(1 << 16):
            pass  # the last block is empty: closed
        connection.close()
