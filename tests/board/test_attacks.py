"""Attacks on the server. Each is raw bytes over a socket, because a client library would correct
them first."""

import json
import random
import socket

import pytest

from tests.board.conftest import Dashboard, message

SECRETS = (
    "root:",
    "labml_app_db",
    "def create_app",
    "SQLite format",
    "[project]",
    "Traceback",
    "traceback",
)


def ask(dashboard: Dashboard, request: bytes, *, is_whole: bool = True) -> tuple[int, bytes]:
    """Send bytes and read to the end. Returns the status (0 if there is none) and the answer.

    A request that may be incomplete is followed by the end of the connection, or its answer would
    never come.
    """
    with socket.create_connection(("127.0.0.1", dashboard.port), timeout=10) as connection:
        answer = b""
        try:
            connection.sendall(request)
            if not is_whole:
                connection.shutdown(socket.SHUT_WR)
            while block := connection.recv(1 << 16):
                answer += block
        except ConnectionError:
            pass  # the server may refuse a request before it is complete
    words = answer.split(b" ", 2)
    return (int(words[1]) if answer.startswith(b"HTTP/") and words[1].isdigit() else 0), answer


def get(
    path: str, *headers: str, method: str = "GET", host: str = "127.0.0.1", body: str = ""
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    lines += [f"Content-Length: {len(body)}"] * bool(body)
    return "\r\n".join([*lines, "", body]).encode("latin-1")


@pytest.fixture(scope="module", autouse=True)
def stalled(shared_dashboard) -> list[socket.socket]:
    """Connections whose headers do not arrive. They last ten seconds, in which the other tests run."""
    whole = b"GET /favicon.ico HTTP/1.1\r\nHost: localhost\r\n\r\n"
    connections = [
        socket.create_connection(("127.0.0.1", shared_dashboard.port), timeout=30) for _ in range(3)
    ]
    for connection, content in zip(connections, (b"", whole[:20], whole + whole[:20]), strict=True):
        connection.sendall(content)
    return connections


def encoded(path: str) -> list[str]:
    """A path and its encoded forms: dots, slashes, both, encoded twice, overlong UTF-8, and
    backslashes."""
    forms = [
        path,
        path.replace("..", "%2e%2e"),
        path.replace("/..", "%2f.."),
        path.replace("../", "..%2f"),
    ]
    forms += [
        path.replace("..", "%252e%252e"),
        path.replace("..", "%c0%ae%c0%ae"),
        path.replace("/", "%2f"),
    ]
    forms += [
        path.replace("../", "..\\"),
        path.replace("../", "..%5c"),
        path.replace("../", "....//"),
    ]
    return ["/" + form.removeprefix("/") for form in forms]


TARGETS = [
    "/../../../../../../../../etc/passwd",
    "/js/../../../../../../../../../etc/passwd",
    "//etc/passwd",
]
TARGETS += [
    "/vendor/../../../../../../../etc/passwd",
    "/vendor/fonts/webfonts/../../../../../../etc/passwd",
]
TARGETS += [
    "/api/../../../../etc/passwd",
    "/api/v1/../../../../etc/passwd",
    "/etc/passwd",
    "/../../../pyproject.toml",
]
TARGETS += [
    "/../settings.py",
    "/../flask_app.py",
    "/static/../db/__init__.py",
    "/dashboard.sqlite3",
]


@pytest.mark.parametrize("target", TARGETS)
def test_no_path_leads_out_of_the_pages_own_files(shared_dashboard, target):
    for form in [*encoded(target), target + "%00.js", "/file:" + target, target + "?x=/etc/passwd"]:
        status, answer = ask(shared_dashboard, get(form))
        assert status in (200, 400, 403, 404, 405), form
        assert not any(secret.encode() in answer for secret in SECRETS), form
        if status == 200:  # an address within the page: only the page itself
            assert b"<title>labml.ai</title>" in answer or b"<title>Folio</title>" in answer, form


HOSTS = ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example"]
HOSTS += ["0.0.0.0", "[::]", "10.0.0.1", "", "127.0.0.1\r\nHost: evil.example"]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    "path", ["/", "/runs", "/js/bundle.min.js", "/api/v1/runs/null", "/%61pi/v1/runs/null"]
)
def test_a_foreign_host_is_refused(shared_dashboard, host, path):
    """A page whose host name resolves to 127.0.0.1 sends this (DNS rebinding)."""
    status, answer = ask(shared_dashboard, get(path, host=host))
    assert status in (400, 403), answer[:200]


ORIGINS = [
    "http://evil.example",
    "https://127.0.0.1",
    "null",
    "http://127.0.0.1:1",
    "file://",
    "https://app.labml.ai",
]
REQUESTS = [
    ("POST", "/api/folio/runs/0123456789"),
    ("PUT", "/api/v1/runs"),
    ("POST", "/api/v1/default/track"),
]
REQUESTS += [("GET", "/runs"), ("OPTIONS", "/api/v1/runs/null")]


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_a_foreign_origin_is_refused(shared_dashboard, origin, method, path):
    status, answer = ask(shared_dashboard, get(path, f"Origin: {origin}", method=method, body="{}"))
    assert status == 403
    assert b"access-control-allow" not in answer.lower()


def test_the_page_works_under_every_name_of_this_machine(shared_dashboard):
    """This includes SSH tunnels, whose local port differs."""
    for host in (
        "127.0.0.1",
        "localhost",
        f"127.0.0.1:{shared_dashboard.port}",
        "LOCALHOST:8000",
        "[::1]:5005",
    ):
        for path in ("/runs", "/api/v1/runs/null"):
            assert ask(shared_dashboard, get(path, f"Origin: http://{host}", host=host))[0] == 200


@pytest.mark.parametrize("path", ["/api/folio/runs/0123456789", "/track?run_uuid=0123456789"])
def test_a_large_body_is_refused_however_it_is_sent(shared_dashboard, path):
    assert ask(shared_dashboard, get(path, "Content-Length: 999999999", method="POST"))[0] == 413
    block = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    chunked = get(path, "Transfer-Encoding: chunked", method="POST") + 200 * block + b"0\r\n\r\n"
    status, answer = ask(shared_dashboard, chunked)
    assert status in (0, 413), answer[:200]  # 0: cut off before it was all sent
    for length in ("-1", "1e9", "0x10", "9" * 5000):
        assert ask(shared_dashboard, get(path, f"Content-Length: {length}", method="POST"))[0] in (
            400,
            413,
        )
    assert ask(shared_dashboard, get("/runs"))[0] == 200


TRACK = f"/api/v1/default/track?run_uuid={'d' * 16}&labml_version=0.5.3"


def with_row(line: str) -> str:
    """A message whose metrics.jsonl has this line."""
    found = message({})
    found["pieces"]["metrics.jsonl"]["text"] = f"{line}\n"
    return json.dumps(found)


@pytest.mark.parametrize(
    ("status", "method", "path", "body"),
    [
        (500, "POST", "/api/v1/run/unknown-run", "{}"),
        (400, "POST", "/api/v1/default/track?run_uuid=0123456789&labml_version=x", "[1]"),
        (400, "POST", "/api/v1/default/track?run_uuid=0123456789&rank=x", "{"),
        (404, "PUT", "/api/folio/runs/0123456789/hidden", '{"hidden": 3}'),
        (400, "PUT", "/api/folio/runs/0123456789/other", "{}"),
        (404, "DELETE", "/api/folio/runs/0123456789", ""),
        (404, "GET", "/api/folio/runs/0123456789?log.txt=x", ""),
        (404, "POST", "/api/folio/try/0123456789", '{"text": "a_"}'),
        (400, "POST", "/api/v1/metrics/unknown-run", "{}"),
        (400, "POST", "/api/folio/runs/0123456789", with_row('{"step": "x"}')),
        (400, "POST", "/api/folio/runs/0123456789", '{"pieces": {"metrics.jsonl": {"from": "x"}}}'),
        (400, "POST", "/api/folio/runs/0123456789", '{"about": {"configs": [], "explicit": 0}}'),
        (400, "POST", "/api/folio/runs/0123456789", with_row('{"step": 1e999}')),
        (
            400,
            "POST",
            "/api/folio/runs/0123456789",
            with_row(json.dumps({"step": 1, "x" * 10_001: 1})),
        ),
        (400, "POST", "/api/folio/runs/0123456789", '{"status": {"status": {}}, "log": 3}'),
        (405, "POST", "/api/folio/runs/..%2f..%2fetc", "{}"),
        (404, "PUT", "/api/folio/runs/0123456789/knobs", '{"learning_rate_factor": 1e308}'),
        # labml-app cannot read these, or would take long for them.
        (400, "PUT", "/api/v1/runs", "[]"),
        (400, "PUT", "/api/v1/runs", "{"),
        (400, "POST", "/api/v1/default/track?run_uuid=abcdef0123456789&rank=0", '{"name":"x"}'),
        *(
            (400, "POST", f"{TRACK}&{n}", '{"name":"x"}')
            for n in ("rank=x", "world_size=1000000000", "main_rank=-1")
        ),
        (400, "POST", TRACK, json.dumps({"name": "x" * 10_001})),
        (
            400,
            "POST",
            TRACK,
            json.dumps({"track": {"loss": {"step": [1] * 20_001, "value": [1] * 20_001}}}),
        ),
        (
            400,
            "POST",
            TRACK,
            json.dumps({"track": {f"{i}": {"step": [1], "value": [1]} for i in range(201)}}),
        ),
    ],
)
def test_a_wrong_request_is_refused_without_a_traceback(
    shared_dashboard, status, method, path, body
):
    found, answer = ask(shared_dashboard, get(path, method=method, body=body))
    assert found == status
    for word in (b"Traceback", b'File \\"', b"site-packages", b".py"):
        assert word not in answer
    assert not any("Traceback" in line for line in shared_dashboard.output)


@pytest.mark.parametrize(
    "path", ["/api/folio/runs/0123456789", "/api/folio/try/0123456789", f"{TRACK}&rank=0"]
)
@pytest.mark.parametrize("body", ["step=3", "{", "\xff\xfe", "[" * 100_000])
def test_a_body_that_is_not_json_is_called_so(shared_dashboard, path, body):
    status, answer = ask(shared_dashboard, get(path, method="POST", body=body))
    assert (status, json.loads(answer.partition(b"\r\n\r\n")[2])) == (
        400,
        {"error": "the body is not JSON"},
    )


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
    "G\x00T",
    "",
]
PATHS = [
    *TARGETS,
    "/runs",
    "/api/v1/runs/null",
    "/api/folio/runs/0123456789",
    "/" + "a" * 5000,
    "*",
    "http://x/y",
]
LENGTHS = ("Content-Length", "Transfer-Encoding", "Expect", "Upgrade")
NAMES = [*LENGTHS, "Host", "Origin", "Range", "Cookie", "X" * 2000]
VALUES = ["127.0.0.1", "evil.example", "-1", "chunked", "bytes=0-", "websocket", "100-continue"]
VALUES += ["\xff\xfe", "9" * 30, ""]
VERSIONS = ["1.1", "1.0", "9.9", ""]
INTERFACE = [f"/api/v1/{path}/0123456789" for path in ("run", "metrics", "logs/std_logger")]
INTERFACE += [
    f"/api/v1/{path}"
    for path in ("runs", "run/0123456789/add", "runs/archive", "user", "auth/user")
]
INTERFACE += [
    "/api/folio/runs/0123456789",
    "/api/folio/runs/0123456789/knobs",
    "/api/folio/try/0123456789",
]
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
]
KEYS += ["step", "name", "preferences"]
SIMPLE = [
    "\ud800",
    float("nan"),
    None,
    True,
    -1,
    2**70,
    1e308,
    "",
    "\x00",
    "../../etc/passwd",
    "$key",
]
SIMPLE += [{"$key": 1}, {"$array": ["x"]}]


def test_thousands_of_generated_requests_leave_it_answering(shared_dashboard):
    generator = random.Random(0)

    def junk() -> bytes:
        return bytes(generator.randrange(256) for _ in range(generator.randrange(60)))

    def value(depth: int = 0) -> object:
        if depth == 2 or generator.random() < 0.6:
            return generator.choice(SIMPLE)
        return {key: value(depth + 1) for key in generator.sample(KEYS, 3)} | {"list": [value(2)]}

    for _ in range(2_000):
        kind = generator.random()
        if kind < 0.3:  # a valid request with an invalid body
            path, method = generator.choice(INTERFACE), generator.choice(["POST", "PUT"])
            _, answer = ask(shared_dashboard, get(path, method=method, body=json.dumps(value())))
        elif kind < 0.4:
            _, answer = ask(shared_dashboard, junk(), is_whole=False)
        else:
            lines = [
                f"{generator.choice(METHODS)} {generator.choice(PATHS)} HTTP/{generator.choice(VERSIONS)}"
            ]
            lines += ["Host: localhost"] * (kind < 0.9)
            lines += [
                f"{generator.choice(NAMES)}: {generator.choice(VALUES)}"
                for _ in range(generator.randrange(4))
            ]
            # A complete request asks to close the connection; any other is broken off after it was
            # sent.
            is_whole = not any(line.split(":")[0] in LENGTHS for line in lines) and lines[
                0
            ].endswith("1.1")
            lines += ["Connection: close"] * is_whole
            request = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + junk() * (not is_whole)
            _, answer = ask(shared_dashboard, request, is_whole=is_whole)
        assert b"Traceback" not in answer
        assert b"root:" not in answer
    assert ask(shared_dashboard, get("/runs"))[0] == 200
    assert ask(shared_dashboard, get("/api/v1/runs/null"))[0] == 200
    assert shared_dashboard.process.poll() is None


def test_a_cross_site_request_without_an_origin_reaches_no_interface(shared_dashboard):
    """For example a picture on another site whose address is one of labml-app's routes that write."""
    # a link to the page is allowed
    for path, status in (("/api/v1/computer/0123456789", 403), ("/runs", 200)):
        assert ask(shared_dashboard, get(path, "Sec-Fetch-Site: cross-site"))[0] == status


def test_files_of_a_folder_that_does_not_carry_the_runs_uuid_are_not_read(
    shared_dashboard, make_run
):
    """A message may name any folder of this machine, and one that cannot be looked at."""
    run = make_run()
    folders = {
        run.path.name: (run.path, 3),
        "e" * 16: (run.path, 0),
        "f" * 16: (f"{'x' * 5_000}/{'f' * 16}", 0),
    }
    for uuid, (folder, n_lines) in folders.items():
        about = {"about": run.about() | {"folder": str(folder)}, "heard": 0.0}
        content, path = json.dumps(message({"step": 1}) | about), f"/api/folio/runs/{uuid}"
        assert ask(shared_dashboard, get(path, method="POST", body=content))[0] == 200
        status, answer = ask(shared_dashboard, get(path))
        assert (status, answer.count(b'loss.valid\\":')) == (200, n_lines)
        tried = get(f"/api/folio/try/{uuid}", method="POST", body='{"text": "a_"}')
        assert ask(shared_dashboard, tried)[0] == 400


def test_it_listens_on_the_loopback_address_only(shared_dashboard):
    with open("/proc/net/tcp") as file:
        listening = [line.split()[1] for line in file.readlines()[1:] if line.split()[3] == "0A"]
    here = [
        address
        for address in listening
        if int(address.partition(":")[2], 16) == shared_dashboard.port
    ]
    assert here == [f"0100007F:{shared_dashboard.port:04X}"]


def test_connections_whose_headers_do_not_arrive_are_closed(stalled):
    for connection in stalled:
        while connection.recv(1 << 16):
            pass  # the last block is empty: closed
        connection.close()
