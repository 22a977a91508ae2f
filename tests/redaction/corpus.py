"""Generates secrets and values that look like secrets, in the places where they occur.

The forms of tokens are those of issuers and public scanners, independent of our rules: no rule is
imported here. A kind is a function that generates a secret; a place is a function that puts it
somewhere and returns what the recorder would write.
"""

import base64
import functools
import html
import json
import random
import re
import string
import tomllib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from mcptally.record.http.body import BodyParser
from mcptally.redaction.policy import Policy
from tests.redaction import public_names

R = random.Random()
LOWER, UPPER, DIGIT = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = LOWER + UPPER + DIGIT
HEX = "0123456789abcdef"
WEB = ALNUM + "-_"
B64 = ALNUM + "+/"
BASE32 = UPPER + "234567"


def of(alphabet: str, size: int) -> str:
    return "".join(R.choices(alphabet, k=size))


def some_uuid() -> str:
    return str(uuid.UUID(int=R.getrandbits(128), version=4))


def web_json(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def pem(kind: str, lines: int = 6) -> str:
    body = "\n".join(of(B64, 64) for _ in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


def jwt() -> str:
    claims = {"sub": of(DIGIT, 10), "iat": R.randint(10**9, 2 * 10**9), "name": of(LOWER, 9)}
    return f"{web_json({'alg': 'RS256', 'typ': 'JWT'})}.{web_json(claims)}.{of(WEB, 86)}"


ALPHABETS = {
    "lower": LOWER, "digit": DIGIT, "alnum": ALNUM, "hex": HEX, "HEX": HEX.upper(), "web": WEB,
    "base64": B64, "base32": BASE32, "upper+digit": UPPER + DIGIT, "lower+digit": LOWER + DIGIT,
    "lower+upper": LOWER + UPPER,
}  # fmt: skip


def filled(template: str) -> str:
    """Return a template of tokens.toml with random characters."""

    def chosen(place: re.Match[str]) -> str:
        alphabet, _, size = place[1].partition(" ")
        return of(ALPHABETS[alphabet], int(size)) if size else R.choice(place[1].split("|"))

    return re.sub(r"\{(.*?)\}", chosen, template)


OTHER_TOKENS: dict[str, Callable[[], str]] = {
    "1Password service account": lambda: "ops_" + web_json({"signInAddress": of(LOWER, 200)}),
    "age key": lambda: "AGE-SECRET-KEY-1" + of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "Azure client secret": lambda: f"{of(ALNUM, 3)}8Q~{of(ALNUM + '~._-', 34)}",
    "Grafana cloud": lambda: "glc_" + web_json({"o": of(DIGIT, 6), "k": of(ALNUM, 24)}),
    "JSON Web Token": jwt,
    "LaunchDarkly": lambda: f"sdk-{some_uuid()}",
    "Mailchimp": lambda: f"{of(HEX, 32)}-us{R.randint(1, 21)}",
    "PEM, EC": lambda: pem("EC PRIVATE KEY", 3),
    "PEM, encrypted": lambda: pem("ENCRYPTED PRIVATE KEY", 12),
    "PEM, OpenSSH": lambda: pem("OPENSSH PRIVATE KEY", 6),
    "PEM, PGP": lambda: pem("PGP PRIVATE KEY BLOCK", 20),
    "PEM, RSA": lambda: pem("RSA PRIVATE KEY", 24),
    "Sentry": lambda: "sntrys_" + web_json({"iat": of(DIGIT, 10)}) + "_" + of(B64, 43),
    "Telegram": lambda: f"{R.randint(10**9, 9 * 10**9)}:AA{of(WEB, 33)}",
}
"""Tokens whose parts are encoded or computed."""

TEMPLATES = tomllib.loads(Path(__file__).with_name("tokens.toml").read_text(encoding="utf-8"))
TOKENS: dict[str, Callable[[], str]] = OTHER_TOKENS | {
    name: functools.partial(filled, template) for name, template in TEMPLATES.items()
}
TOKENS = dict(sorted(TOKENS.items(), key=lambda each: each[0].casefold()))
"""Kinds of tokens that are recognised by their form."""

VALUES: dict[str, Callable[[], str]] = {
    "random, mixed": lambda: of(ALNUM, 20),
    "random, with signs": lambda: of(ALNUM + "!#$%^*-_+.", 16),
    "hexadecimal": lambda: of(HEX, 32),
    "base64": lambda: base64.b64encode(R.randbytes(30)).decode(),
    "UUID": some_uuid,
    "word and number": lambda: R.choice(["Summer", "tiger", "Dragon"]) + of(DIGIT, 4) + "!",
    "letters": lambda: of(LOWER + UPPER, 14),
    "PIN": lambda: of(DIGIT, 6),
}
"""Kinds of secrets without a form, which are recognised only by the name next to them."""

NAMES = [
    "password", "Password", "PASSWORD", "passwd", "pwd", "db_password", "dbPassword",
    "DB-PASSWORD", "db.password", "userPassword", "passphrase", "api_key", "apiKey", "API-KEY",
    "apikey", "X-API-Key", "client_secret", "clientSecret", "CLIENT_SECRET", "secret",
    "secretKey", "AWS_SECRET_ACCESS_KEY", "aws_session_token", "accessToken", "access_token",
    "refresh_token", "authToken", "AUTH_TOKEN", "bearer_token", "token", "private_key",
    "encryptionKey", "signing_key", "GITHUB_TOKEN", "OPENAI_API_KEY", "webhook_secret",
    "connection_password", "sessionToken", "id_token", "account_key", "credentials",
]  # fmt: skip


def result(text: object) -> bytes:
    body = {"content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": body}).encode()


def error(message: str, data: object = None) -> bytes:
    body = {"code": -32603, "message": message, "data": data}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "error": body}).encode()


def call(arguments: object) -> bytes:
    params = {"name": "run", "arguments": arguments}
    return json.dumps({"id": 1, "method": "tools/call", "params": params}).encode()


def from_stream(frame: bytes, hide: Policy) -> bytes:
    """An event that arrived in two chunks."""
    body = BodyParser(content_type="text/event-stream")
    wire = b"event: message\ndata: " + frame + b"\n\n"
    seen = [*body.feed(wire[: len(wire) // 2]), *body.feed(wire[len(wire) // 2 :]), *body.end()]
    return b"".join(hide.json(bytes(one.piece))[0] for one in seen)  # type: ignore[arg-type]


Put = Callable[[str, Policy], bytes]
PutNamed = Callable[[str, str, Policy], bytes]

TOKEN_PLACES: dict[str, Put] = {
    "argument": lambda s, h: h.json(call({"q": s}))[0],
    "argument, in a list": lambda s, h: h.json(call({"q": ["a", s]}))[0],
    "name of a key": lambda s, h: h.json(call({s: 1}))[0],
    "result, prose": lambda s, h: h.json(result(f"Use {s} from now on."))[0],
    "result, after a line break": lambda s, h: h.json(result(f"first\n{s}\nlast"))[0],
    "result, JSON in text": lambda s, h: h.json(result(json.dumps({"x": s})))[0],
    "result, JSON in JSON in text": lambda s, h: h.json(
        result(json.dumps({"x": json.dumps([{"y": s}])})))[0],
    "result, escaped as \\u00xx": lambda s, h: h.json(
        result("@@").replace(b"@@", "".join(f"\\u{ord(c):04x}" for c in s).encode()))[0],
    "result, Python repr": lambda s, h: h.json(result(repr({"x": s})))[0],
    "result, Markdown": lambda s, h: h.json(result(f"Set `{s}` as the **key**."))[0],
    "result, HTML": lambda s, h: h.json(result(f'<a title="{html.escape(s)}">x</a>'))[0],
    "result, CSV": lambda s, h: h.json(result(f"id,value\n1,{s}\n"))[0],
    "result, diff": lambda s, h: h.json(result(f"@@ -1 +1 @@\n+{s}\n-old"))[0],
    "error message": lambda s, h: h.json(error(f"401 for key '{s}'"))[0],
    "error data": lambda s, h: h.json(error("failed", {"cause": f"rejected {s}."}))[0],
    "event stream, cut in the middle": lambda s, h: from_stream(result(s), h),
    "URL, query": lambda s, h: h.json(result(f"GET https://h.example/p?v={quote(s, '')}&b=2"))[0],
    "URL, path": lambda s, h: h.json(result(f"https://h.example/p/{quote(s, '')}/x"))[0],
    "http event, path": lambda s, h: h.url(f"/mcp?v={quote(s, '')}")[0].encode(),
    "http event, Authorization": lambda s, h: repr(
        h.headers([("Authorization", f"Bearer {s}")])[0]).encode(),
    "http event, a header of its own": lambda s, h: repr(h.headers([("X-Thing", s)])[0]).encode(),
    "http event, Location": lambda s, h: repr(
        h.headers([("Location", f"https://h.example/cb?v={quote(s, '')}")])[0]).encode(),
    "command line": lambda s, h: repr(h.argv(["server", "--x", s])[0]).encode(),
    "stderr": lambda s, h: h.text(f"2026-01-01 INFO using {s}".encode())[0],
    "stderr, coloured": lambda s, h: h.text(f"\x1b[32m{s}\x1b[0m done".encode())[0],
    "torn frame": lambda s, h: h.text(result(f"{s} and more")[:-6])[0],
}  # fmt: skip

VALUE_PLACES: dict[str, PutNamed] = {
    "argument": lambda n, v, h: h.json(call({n: v}))[0],
    "argument, in a list": lambda n, v, h: h.json(call({n: [v, v]}))[0],
    "argument, deep": lambda n, v, h: h.json(call({"a": [{"b": {n: v}}]}))[0],
    "result, JSON in text": lambda n, v, h: h.json(result(json.dumps({n: v}, indent=2)))[0],
    "result, JSON in JSON in text": lambda n, v, h: h.json(
        result(json.dumps({"x": json.dumps({n: v})})))[0],
    "result, Python repr": lambda n, v, h: h.json(result(repr({n: v})))[0],
    "result, list of names and values": lambda n, v, h: h.json(
        result(json.dumps([{"name": n, "value": v}])))[0],
    "result, environment": lambda n, v, h: h.json(
        result(f"HOME=/root\n{env(n)}={v}\nLANG=C"))[0],
    "result, TOML": lambda n, v, h: h.json(result(f'[db]\n{n} = "{v}"\nport = 1'))[0],
    "result, YAML": lambda n, v, h: h.json(result(f"db:\n  {n}: {v}\n  port: 1"))[0],
    "result, YAML, quoted": lambda n, v, h: h.json(result(f'db:\n  {n}: "{v}"\n  port: 1'))[0],
    "result, XML": lambda n, v, h: h.json(result(f"<db><{n}>{html.escape(v)}</{n}></db>"))[0],
    "result, shell": lambda n, v, h: h.json(result(f"export {env(n)}='{v}'"))[0],
    "result, JavaScript": lambda n, v, h: h.json(
        result(f'const config = {{ {n.replace("-", "_").replace(".", "_")}: "{v}" }};'))[0],
    "error message": lambda n, v, h: h.json(error(f'bad config {{"{n}": "{v}"}}'))[0],
    "event stream, cut in the middle": lambda n, v, h: from_stream(call({n: v}), h),
    "URL, query": lambda n, v, h: h.json(result(f"https://h.example/?a=1&{n}={quote(v, '')}"))[0],
    "URL, password": lambda _, v, h: h.json(
        result(f"postgres://app:{quote(v, '')}@db.local:5432/app"))[0],
    "http event, path": lambda n, v, h: h.url(f"/mcp?{n}={quote(v, '')}")[0].encode(),
    "http event, Authorization": lambda n, v, h: repr(h.headers([(
        "Authorization", f"Basic {base64.b64encode(f'{n}:{v}'.encode()).decode()}")])[0]).encode(),
    "command line, flag": lambda n, v, h: repr(
        h.argv(["server", f"--{n.replace('_', '-')}", v])[0]).encode(),
    "command line, flag=value": lambda n, v, h: repr(
        h.argv(["server", f"--{n.replace('_', '-')}={v}"])[0]).encode(),
    "command line, environment": lambda n, v, h: repr(
        h.argv(["docker", "run", "-e", f"{env(n)}={v}"])[0]).encode(),
    "stderr, header": lambda _, v, h: h.text(f"> Authorization: Bearer {v}".encode())[0],
    "stderr, assignment": lambda n, v, h: h.text(f"DEBUG {n}={v} retries=3".encode())[0],
    "torn frame": lambda n, v, h: h.text(call({n: v})[:-4])[0],
}  # fmt: skip


def env(name: str) -> str:
    return name.upper().replace("-", "_").replace(".", "_")


def some_words() -> str:
    words = "the key of a good token is that nobody keeps its secret password in plain auth text"
    return " ".join(R.sample(words.split(), 9))


LOOK_ALIKES: dict[str, Callable[[], object]] = {
    "UUID": lambda: f"id {some_uuid()}",
    "SHA-1 and SHA-256": lambda: f"commit {of(HEX, 40)} tree {of(HEX, 64)}",
    "container digest": lambda: f"alpine@sha256:{of(HEX, 64)}",
    "ETag and trace id": lambda: {"etag": f'W/"{of(HEX, 32)}"', "traceId": of(HEX, 32)},
    "base64 image": lambda: base64.b64encode(R.randbytes(600)).decode(),
    "integrity of a package": lambda: "sha512-" + base64.b64encode(R.randbytes(64)).decode(),
    "cursor": lambda: {"nextCursor": web_json({"o": R.randint(1, 999)}), "pageToken": "p2"},
    "progress": lambda: {"_meta": {"progressToken": some_uuid()}},
    "numbers": lambda: f"{R.random():.17f} {R.getrandbits(63)} +49 30 {of(DIGIT, 8)}",
    "times": lambda: "2026-11-22T01:02:03.456789Z 1795311488918388136 20261122T010203Z",
    "versions": lambda: "openssl 3.0.13-1ubuntu2.4+esm1 node v22.11.0 1.2.3-rc.4+build.567",
    "paths": lambda: f"/usr/lib/python3/{of(LOWER, 8)}/secrets.py C:\\Users\\x\\token_store.json",
    "package names": lambda: "@scope/sk-toolbar-button npm_config_cache_directory_of_the_user_home",
    "CSS": lambda: "sk-fading-circle fc-daygrid-event-harness key-value-pair-row glc-grid-inner",
    "prose": some_words,
    "prose about errors": lambda: R.choice([
        "Unexpected token: } at 4", "invalid password: too short", "Missing api key",
        "token: expired", "Authorization: required", "no secret: found", "API key: missing",
        "Bearer token missing", "Basic authentication required", "the secret was not found",
        "password=... is not allowed", "auth: none", "Token limit: 4096", "key: value"]),
    "schema": lambda: {"type": "object", "required": NAMES[:9],
                       "properties": {n: {"type": "string", "description": n} for n in NAMES}},
    "schema in text": lambda: json.dumps({"password": {"type": "string", "minLength": 8}}),
    "source code": lambda: (
        "def login(password: str, token: str | None = None):\n    secret = get_secret(password)\n"
        "    api_key = os.environ['API_KEY']\n    return Client(token=token, key=settings.KEY)"),
    "placeholders": lambda: R.choice([
        "API_KEY=<your key>", "--token $TOKEN", "password: ${DB_PASSWORD}", "API_KEY=********",
        "token={{ token }}", "PASSWORD=xxxxxxxx", 'api_key: "<redacted>"', "secret: null"]),
    "usage": lambda: {"max_tokens": "9", "total_tokens": 7, "tokens": "5", "token_type": "bearer"},
    "names of keys": lambda: {"key": "k1", "primary_key": "id", "keyboard": "us", "sortKey": "name",
                              "foreignKey": "user_id", "secretName": "db", "passed": "yes"},
    "objects in a bucket": lambda: {"Key": f"logs/{of(HEX, 8)}.gz", "ETag": of(HEX, 32)},
    "URLs": lambda: "http://127.0.0.1:8080/a@b http://[::1]:80/?page=2&sort_key=name&code=42",
    "identifiers": lambda: f"arn:aws:iam::{of(DIGIT, 12)}:role/x projects/p/secrets/s/versions/1",
    "colours and addresses": lambda: "#a1b2c3 00:1A:2B:3C:4D:5E fe80::1ff:fe23:4567:890a",
    "language model's tokens": lambda: {"token": " the", "logprob": -0.01, "token_id": "1820"},
    "words that begin like tokens": lambda: (
        "rk_test suite, hf_transformers_pipeline_name, sessions, AKIAIMPORTANT, pat on the back"),
}  # fmt: skip


def parts(secret: str) -> list[str]:
    """A part from the middle of a secret, which must not remain after redaction."""
    if secret.startswith("-----"):
        return secret.splitlines()[1:-1]
    secret = secret.rpartition("/")[2] if "://" in secret else secret
    at = max(0, len(secret) // 2 - 5)
    return [secret[at : at + 10] if len(secret) > 16 else secret]


def left(clean: bytes, secret: str) -> bool:
    """Return whether the part is still in the text, in any encoding."""
    text = clean.decode(errors="replace")
    for _ in range(4):
        for part in parts(secret):
            if any(p in text for p in (part, quote(part, ""), html.escape(part))):
                return True
        if "\\" not in text:
            return False
        text = text.encode("latin-1", "replace").decode("unicode_escape", errors="replace")
    return False


def tokens(hide: Policy) -> Iterator[tuple[str, str, bool]]:
    """Each kind of token in each place, and whether it is found."""
    for kind, make in TOKENS.items():
        for place, put in TOKEN_PLACES.items():
            secret = make()
            yield kind, place, not left(put(secret, hide), secret)


def values(hide: Policy) -> Iterator[tuple[str, str, str, bool]]:
    """Each kind of secret without a form, in each place with each name, and whether it is found."""
    for kind, make in VALUES.items():
        for place, put in VALUE_PLACES.items():
            for name in NAMES:
                secret = make()
                yield kind, place, name, not left(put(name, secret, hide), secret)


def look_alikes(hide: Policy) -> Iterator[tuple[str, int]]:
    """Each kind of harmless value in results, arguments and stderr, and how much is replaced."""
    for kind, make in LOOK_ALIKES.items():
        thing = make()
        text = thing if isinstance(thing, str) else json.dumps(thing)
        yield kind, hide.json(result(text))[1]
        yield kind, hide.json(call({"q": thing}))[1]
        yield kind, hide.text(text.encode())[1]


PUBLIC_PLACES: dict[str, Callable[[str, str], bytes]] = {
    "argument": lambda n, v: call({n: v}),
    "JSON in text": lambda n, v: result(json.dumps({"env": {n: v}}, indent=2)),
    "environment file": lambda n, v: result(f"A=1\n{n}={v}\nB=2"),
    "shell": lambda n, v: result(f'export {n}="{v}"'),
    "words of a command": lambda n, v: call({"args": ["run", "-e", f"{n}={v}", "image"]}),
}
"""Places for names of settings and arguments."""


def hidden(hide: Policy, name: str, value: str) -> Iterator[bool]:
    """Return whether the value is replaced, for each place that suits the name."""
    for place, put in PUBLIC_PLACES.items():
        if name.isupper() or place in {"argument", "JSON in text"}:
            yield not left(hide.json(put(name, value))[0], value)


def public_secrets(
    hide: Policy, sources: dict[str, public_names.Source]
) -> Iterator[tuple[str, bool]]:
    """The kind of source of each secret, and whether it is found."""
    for source in sources.values():
        for name in source.secrets.split():
            for kind in ("random, mixed", "hexadecimal", "base64"):
                for is_hidden in hidden(hide, name, VALUES[kind]()):
                    yield source.kind, is_hidden


def commands(hide: Policy) -> Iterator[tuple[str, bool]]:
    """Each command with a secret, and whether it is found."""
    for line in public_names.COMMANDS:
        for put in (result, lambda text: call({"command": text})):
            secret = of(ALNUM, 14)
            yield line, not left(hide.json(put(line.format(secret)))[0], secret)


def source_code(hide: Policy, folder: Path) -> Iterator[tuple[bytes, bytes]]:
    """The lines of every fifth Python file of a folder before and after redaction."""
    for path in sorted(folder.rglob("*.py"))[::5]:
        place = path.relative_to(folder).as_posix()
        if "test" in place or place.startswith("site-packages") or path.is_symlink():
            continue
        data = path.read_bytes()
        yield from zip(data.split(b"\n"), hide.text(data)[0].split(b"\n"), strict=False)
