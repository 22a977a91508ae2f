"""Recall, false positives and cost of redaction: made-up secrets in every place they occur.

    python -m tests.benchmarks redaction [--policy default] [--seed 1] [--markdown]

Secrets are made after their issuers' public descriptions, not from our own patterns. Two groups:
tokens that are known by their shape, in places that say nothing, and values without any shape
(passwords, hexadecimal keys), in places whose name says what they are. What is neither, nobody can
find; it is not counted. False positives are counted on made-up hard cases and, where there is a
corpus, on its messages, none of which holds a live secret.
"""

import argparse
import base64
import json
import random
import re
import statistics
import string
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from urllib.parse import quote

import zstandard

from mcptally.redaction.policy import Policy, policy
from tests.benchmarks import traffic
from tests.corpus import SAMPLES

_R = random.Random()
_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_URLSAFE = _ALNUM + "-_"
_DIGITS = string.digits
_BASE32 = string.ascii_uppercase + "234567"
_WORDS = ["correct", "horse", "battery", "staple", "river", "Summer", "Winter", "monkey"]


def chars(alphabet: str, n: int) -> str:
    return "".join(_R.choices(alphabet, k=n))


def segment(size: int) -> str:
    body = json.dumps({"sub": chars(_ALNUM, size)}).encode()
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def pem(kind: str) -> str:
    lines = "\n".join(chars(_ALNUM + "+/", 64) for _ in range(6))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----"


_HOOKS = "https://hooks.slack.com/services"

TOKENS: dict[str, Callable[[], str]] = {
    "anthropic": lambda: f"sk-ant-api03-{chars(_URLSAFE, 93)}AA",
    "openai, old": lambda: f"sk-{chars(_ALNUM, 48)}",
    "openai, project": lambda: f"sk-proj-{chars(_URLSAFE, 74)}T3BlbkFJ{chars(_URLSAFE, 74)}",
    "openrouter": lambda: f"sk-or-v1-{chars(_HEX, 64)}",
    "github, classic": lambda: f"gh{_R.choice('posru')}_{chars(_ALNUM, 36)}",
    "github, fine-grained": lambda: f"github_pat_{chars(_ALNUM, 22)}_{chars(_ALNUM, 59)}",
    "gitlab": lambda: f"glpat-{chars(_URLSAFE, 20)}",
    "slack bot": lambda: f"xoxb-{chars(_DIGITS, 12)}-{chars(_DIGITS, 12)}-{chars(_ALNUM, 24)}",
    "slack app": lambda: f"xapp-1-A{chars(_ALNUM, 10)}-{chars(_DIGITS, 13)}-{chars(_HEX, 64)}",
    "aws access key": lambda: f"{_R.choice(['AKIA', 'ASIA'])}{chars(_BASE32, 16)}",
    "google api": lambda: f"AIza{chars(_URLSAFE, 35)}",
    "google oauth": lambda: f"ya29.{chars(_URLSAFE, 160)}",
    "npm": lambda: f"npm_{chars(_ALNUM, 36)}",
    "pypi": lambda: f"pypi-AgEIcHlwaS5vcmc{chars(_URLSAFE, 150)}",
    "hugging face": lambda: f"hf_{chars(string.ascii_letters, 34)}",
    "sendgrid": lambda: f"SG.{chars(_URLSAFE, 22)}.{chars(_URLSAFE, 43)}",
    "stripe": lambda: f"{_R.choice(['sk_live', 'rk_test'])}_{chars(_ALNUM, _R.choice([24, 99]))}",
    "jwt": lambda: f"eyJhbGciOiJIUzI1NiJ9.{segment(60)}.{chars(_URLSAFE, 43)}",
    "groq": lambda: f"gsk_{chars(_ALNUM, 52)}",
    "perplexity": lambda: f"pplx-{chars(_ALNUM, 48)}",
    "tavily": lambda: f"tvly-dev-{chars(_ALNUM, 32)}",
    "firecrawl": lambda: f"fc-{chars(_HEX, 32)}",
    "figma": lambda: f"figd_{chars(_URLSAFE, 40)}",
    "notion": lambda: f"ntn_{chars(_ALNUM, 46)}",
    "linear": lambda: f"lin_api_{chars(_ALNUM, 40)}",
    "atlassian": lambda: f"ATATT3xFfGF0{chars(_URLSAFE, 170)}={chars(_HEX.upper(), 8)}",
    "digitalocean": lambda: f"dop_v1_{chars(_HEX, 64)}",
    "docker hub": lambda: f"dckr_pat_{chars(_URLSAFE, 27)}",
    "grafana": lambda: f"glsa_{chars(_ALNUM, 32)}_{chars(_HEX, 8)}",
    "vault": lambda: f"hvs.{chars(_URLSAFE, 92)}",
    "supabase": lambda: f"sbp_{chars(_HEX, 40)}",
    "telegram bot": lambda: f"{chars('123456789', 10)}:AA{chars(_URLSAFE, 33)}",
    "pem key": lambda: pem(_R.choice(["", "RSA ", "EC ", "OPENSSH "])),
    "database url": lambda: f"postgresql://app:{chars(_ALNUM, 14)}@db.local:5432/app",
    "slack webhook": lambda: f"{_HOOKS}/T{chars(_ALNUM, 9)}/B{chars(_HEX, 9)}/{chars(_HEX, 24)}",
}  # fmt: skip

VALUES: dict[str, Callable[[], str]] = {
    "password, human": lambda: f"{_R.choice(_WORDS)}{_R.randint(1, 9999)}{_R.choice('!?$#*')}",
    "password, random": lambda: chars(_ALNUM + "!#$%^*-_+.", 14),
    "password, only letters": lambda: chars(string.ascii_letters, 12),
    "password, a word": lambda: "".join(_R.sample([w.lower() for w in _WORDS], 2)),
    "hex key": lambda: chars(_HEX, 32),
    "base64 key": lambda: base64.b64encode(_R.randbytes(30)).decode(),
    "uuid key": lambda: str(uuid.UUID(int=_R.getrandbits(128))),
}

NAMES = ["password", "api_key", "apiKey", "client_secret", "DB_PASSWORD", "access_token",
         "authToken", "secretKey", "private_key", "AWS_SECRET_ACCESS_KEY"]  # fmt: skip


def message(text: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"text": text}]}})


def escaped(text: str) -> str:
    return message("\0").replace("\\u0000", "".join(f"\\u{ord(c):04x}" for c in text))


TOKEN_PLACES: dict[str, Callable[[str], str]] = {
    "argument": lambda s: json.dumps({"method": "tools/call", "params": {"arguments": {"q": s}}}),
    "result text": lambda s: message(f"The value is {s} and that is all."),
    "after a line break": lambda s: message(f"first\n{s}\nlast"),
    "error message": lambda s: json.dumps(
        {"error": {"code": -32000, "message": f"bad key: '{s}'"}}
    ),
    "JSON in text": lambda s: message(json.dumps({"x": s})),
    "JSON in JSON in text": lambda s: message(json.dumps({"x": json.dumps([s])})),
    "escaped \\u00xx": escaped,
    "stderr": lambda s: f"2026-01-01 INFO using {s}\n",
    "url query": lambda s: message(f"GET https://h.example/p?a=1&v={quote(s, safe='')}&b=2 200"),
    "markdown": lambda s: message(f"Set `{s}` as **key**."),
    "python repr": lambda s: message(repr({"x": s})),
    "torn frame": lambda s: json.dumps({"result": {"text": s}})[:-3],
}

VALUE_PLACES: dict[str, Callable[[str, str], str]] = {
    "argument": lambda n, v: json.dumps({"params": {"arguments": {n: v}}}),
    "JSON in text": lambda n, v: message(json.dumps({n: v}, indent=1)),
    "JSON in JSON in text": lambda n, v: message(json.dumps({"x": json.dumps({n: v})})),
    "escaped \\u0022": lambda n, v: message("\0").replace(
        "\\u0000", json.dumps(json.dumps({n: v}))[1:-1].replace('\\"', "\\u0022")
    ),
    "list of name and value": lambda n, v: message(json.dumps([{"name": n, "value": v}])),
    "python repr": lambda n, v: message(repr({n: v})),
    "environment": lambda n, v: message(f"HOME=/root\n{n.upper()}={v}\nLANG=C"),
    "shell export": lambda n, v: f"export {n.upper()}='{v}'\n",
    "yaml": lambda n, v: message(f"db:\n  {n}: {v}\n  port: 1"),
    "toml": lambda n, v: message(f'[db]\n{n} = "{v}"\nport = 1'),
    "url query": lambda n, v: message(f"https://h.example/p?a=1&{n}={quote(v, safe='')}&b=2"),
    "header line": lambda n, v: message(f"HTTP/1.1\r\nX-{n.replace('_', '-')}: {v}\r\nA: b"),
    "flag": lambda n, v: message(f"run --{n.lower().replace('_', '-')} {v} --verbose"),
    "xml": lambda n, v: message(f"<db><{n}>{v}</{n}></db>"),
    "basic authorization": lambda n, v: message(
        f"Authorization: Basic {base64.b64encode(f'{n}:{v}'.encode()).decode()}"
    ),
    "bearer authorization": lambda _, v: json.dumps({"headers": {"Authorization": f"Bearer {v}"}}),
}

NEGATIVES: dict[str, Callable[[], str]] = {
    "uuid": lambda: message(f"id {uuid.UUID(int=_R.getrandbits(128))}"),
    "git hash": lambda: message(f"commit {chars(_HEX, 40)} Fix token parsing"),
    "base64 image": lambda: message(base64.b64encode(_R.randbytes(900)).decode()),
    "cursor": lambda: json.dumps({"nextCursor": segment(9), "progressToken": chars(_HEX, 8)}),
    "usage": lambda: message({"max_tokens": "9", "total_tokens": _R.randint(1, 9), "tokens": "5"}),
    "schema": lambda: message({"properties": {n: {"type": "string"} for n in NAMES},
                               "required": NAMES}),
    "token error": lambda: message(
        _R.choice(["Unexpected token: } at 4", "invalid password: too short", "Missing api key",
                   "token: expired", "Authorization: required", "no secret: found",
                   "API key: missing", "Bearer token missing", "password = input()"])
    ),
    "source code": lambda: message(
        "def login(password: str, token: str | None = None):\n    secret = get_secret(password)\n"
        "    api_key = os.environ['API_KEY']\n    return Client(token=token, password=password)"
    ),
    "typescript": lambda: message(
        "const { apiKey } = config; const token: string = await getToken(); "
        "interface A { password: string; secretKey?: Buffer }"
    ),
    "documentation": lambda: message(
        "Set `API_KEY=<your key>` or `--token $TOKEN`. Use Basic authentication, or a Bearer token."
    ),
    "package lock": lambda: message(
        f"integrity sha512-{base64.b64encode(_R.randbytes(64)).decode()} @scope/sk-utils@1.2.3"
    ),
    "key and name": lambda: message({"key": "k1", "primary_key": "id", "keyboard": "us",
                                     "token_type": "bearer", "secretName": "db", "pass": "yes"}),
    "urls": lambda: message("http://127.0.0.1:8080/a@b http://[::1]:80/?page=2&sort_key=name"),
    "css": lambda: message("sk-fading-circle fc-daygrid-event-harness-absolute key-value-pair-row"),
}  # fmt: skip


def secret_part(kind: str, secret: str) -> list[str]:
    """The part that must not remain: the address of a database or webhook is not a secret."""
    if kind == "database url":
        return [secret.rpartition("@")[0].rpartition(":")[2]]
    if kind == "pem key":
        return secret.splitlines()[1:-1]
    return [secret.rpartition("/")[2] if kind == "slack webhook" else secret]


def leaks(clean: bytes, parts: list[str]) -> bool:
    """Is a part, or a stretch of 12 characters from its middle, still there in any spelling?"""
    text = clean.decode(errors="replace")
    for _ in range(3):
        for part in parts:
            middle = part[len(part) // 2 :][:12] if len(part) > 24 else part
            if middle in text or quote(middle, safe="") in text:
                return True
            if json.dumps(middle)[1:-1] in text:
                return True
        text = text.encode().decode("unicode_escape", errors="replace") if "\\" in text else text
    return False


def recall(hide: Policy, rounds: int) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    by_place: dict[str, Counter[str]] = defaultdict(Counter)
    for _ in range(rounds):
        for kind, make in TOKENS.items():
            for place, put in TOKEN_PLACES.items():
                secret = make()
                count(hide, put(secret), secret_part(kind, secret), by_kind[f"token: {kind}"],
                      by_place[f"token: {place}"])  # fmt: skip
        for kind, make in VALUES.items():
            for place, put_value in VALUE_PLACES.items():
                secret = make()
                text = put_value(_R.choice(NAMES), secret)
                parts = [secret]
                if place == "basic authorization":
                    parts = [text.rpartition(" ")[2].split('"')[0]]
                count(hide, text, parts, by_kind[f"value: {kind}"], by_place[f"value: {place}"])
    return by_kind, by_place


def count(
    hide: Policy, text: str, parts: list[str], kind: Counter[str], place: Counter[str]
) -> None:
    clean, _ = hide.text(text.encode())
    result = "missed" if leaks(clean, parts) else "found"
    kind[result] += 1
    place[result] += 1


def table(title: str, rows: dict[str, Counter[str]], markdown: bool) -> None:
    print(f"\n{title}\n" if markdown else f"\n{title}")
    if markdown:
        print("| | found | of | recall |\n|---|---|---|---|")
    for name, result in sorted(rows.items()):
        total = result["found"] + result["missed"]
        share = f"{result['found'] / total:.1%}"
        form = "| {} | {} | {} | {} |" if markdown else "{:36} {:6} {:6} {:>7}"
        print(form.format(name, result["found"], total, share))


def real_messages() -> list[bytes]:
    found = []
    for path in (traffic.folder() or SAMPLES).glob("*.zst"):
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            for line in stream.read().splitlines():
                begin = line.find(b'"msg":')
                if begin > 0:
                    found.append(line[begin + 6 : -1])
    return found


def large_frames() -> dict[str, bytes]:
    """Frames of about a megabyte, by what they contain."""
    ids = ",".join(
        f'{{"session_id":"{number:032x}","token_count":{number}}}' for number in range(15_000)
    )
    prose = "The report lists all orders of the customer, with dates and amounts. " * 15_000
    image = base64.b64encode(_R.randbytes(750_000)).decode()
    return {
        "prose": message(prose).encode(),
        "a base64 image": message(image).encode(),
        "session_id and token_count": f'{{"result":[{ids}]}}'.encode(),
    }


def cost(hide: Policy) -> None:
    """Print CPU time per frame and per megabyte; the median of several runs."""
    print()
    small = {
        "a frame of 200 bytes": message("x" * 160).encode(),
        "the same with a secret": message("x" * 120 + " ghp_" + chars(_ALNUM, 36)).encode(),
    }
    for name, frame in small.items():
        print(f"{name:32} {_cpu_seconds(hide, frame, 2_000) * 1e6:8.1f} us")
    for name, frame in large_frames().items():
        spent = _cpu_seconds(hide, frame, 3)
        print(f"{name:32} {spent / len(frame) * 1e9:8.1f} ms/MB")


def _cpu_seconds(hide: Policy, frame: bytes, repeats: int) -> float:
    times = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(repeats):
            hide.json(frame)
        times.append((time.process_time() - began) / repeats)
    return statistics.median(times)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--policy", default="default")
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--rounds", type=int, default=20)
    ask.add_argument("--markdown", action="store_true")
    options = ask.parse_args()
    _R.seed(options.seed)
    hide = policy(options.policy)

    by_kind, by_place = recall(hide, options.rounds)
    table("Recall by kind", by_kind, options.markdown)
    table("Recall by place", by_place, options.markdown)
    for group in ("token", "value"):
        total = sum((c for k, c in by_kind.items() if k.startswith(group)), Counter())
        print(f"\n{group}s: {total['found']} of {total.total()} found "
              f"({total['found'] / total.total():.2%})")  # fmt: skip

    wrong = {}
    for name, make in NEGATIVES.items():
        texts = [make().encode() for _ in range(options.rounds)]
        wrong[name] = sum(hide.json(text)[1] > 0 for text in texts)
    print(f"\nFalse positives on hard cases, of {options.rounds} each: "
          + (", ".join(f"{k} {v}" for k, v in wrong.items() if v) or "none")
          + f" ({sum(wrong.values()) / options.rounds / len(wrong):.2%})")  # fmt: skip

    cost(hide)
    frames = real_messages()
    began = time.process_time()
    results = [hide.json(frame) for frame in frames]
    spent = time.process_time() - began
    hits = Counter[str]()
    for clean, number in results:
        if number:
            hits.update(kind.decode() for kind in set(_MARK.findall(clean)))
    size = sum(map(len, frames))
    print(f"\nReal messages: {len(frames)} ({size / 1e6:.0f} MB); replaced in: {dict(hits)}")
    print(
        f"Cost there: {spent / len(frames) * 1e6:.1f} us a message, {spent / size * 1e9:.1f} ms/MB"
    )


_MARK = re.compile(rb"(?:\[redacted:|\[hashed:|redacted-)([a-z-]+)")

if __name__ == "__main__":
    main()
