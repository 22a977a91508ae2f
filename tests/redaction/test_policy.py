"""Policies: replaced values, unchanged values, and the structure of JSON."""

import json
import random
import re
import string
import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptally.redaction.key_patterns import NAME_RULES
from mcptally.redaction.policy import ALL_PATTERNS, RULES, hashed, policy
from mcptally.redaction.secret_patterns import TOKEN_PREFIXES

_ALPHANUMERIC = string.ascii_letters + string.digits
DEFAULT = policy()
REDACTED = tomllib.loads(Path(__file__).with_name("redacted.toml").read_text(encoding="utf-8"))


def made_up(example: str) -> str:
    """The example with `<n>` replaced by n characters that look like a token."""
    rng = random.Random(example)

    def token(match: re.Match[str]) -> str:
        size = int(match[1])
        return "".join(rng.choices(_ALPHANUMERIC, k=size - 2)) + "a7"

    return re.sub(r"<(\d+)>", token, example)


def only(name: str) -> str:
    return f"none,+{name}"


@pytest.mark.parametrize(
    ("rule", "example"),
    [(row.name, made_up(text)) for row in (*ALL_PATTERNS, *NAME_RULES) for text in row.fires],
)
def test_a_rule_finds_a_secret_in_its_examples(rule, example):
    clean, count = policy(only(rule)).text(example.encode())
    assert count == 1, clean
    assert b"redacted" in clean or b"[hashed:" in clean


@pytest.mark.parametrize(
    ("rule", "example"),
    [
        (row.name, text)
        for row in (*ALL_PATTERNS, *NAME_RULES, *TOKEN_PREFIXES)
        for text in row.silent
    ],
)
def test_a_rule_finds_nothing_in_its_counterexamples(rule, example):
    assert policy(only(rule)).text(example.encode()) == (example.encode(), 0)


def test_every_rule_but_the_prefixes_has_both_kinds_of_examples():
    assert all(row.fires and row.silent for row in (*ALL_PATTERNS, *NAME_RULES))


@pytest.mark.slow
@pytest.mark.parametrize("row", TOKEN_PREFIXES, ids=lambda row: row.name)
@settings(max_examples=max(1, settings.default.max_examples // 10))
@given(data=st.data())
def test_tokens_of_every_prefix_are_found_in_json_text_and_urls(row, data):
    hide = policy(only(row.name))
    for prefix in row.prefixes:
        pattern = re.compile(prefix.replace(".", r"\.") + row.tail)
        token = data.draw(st.from_regex(pattern, fullmatch=True))
        quoted = json.dumps({"a": {"text": f"see\n{token} and more", "n": 1}})
        for frame in (
            json.dumps({"k": token}),
            quoted,
            json.dumps({"again": quoted}),
            json.dumps({"and": json.dumps({"again": quoted})}),
            f"https://h.example/x?u={token}&v=1",
            f"log line\n{token}\n",
            f"export X='{token}'",
        ):
            clean, count = hide.json(frame.encode())
            assert count >= 1
            assert token[:12].encode() not in clean


@pytest.mark.parametrize(("frame", "clean"), REDACTED["changed"])
def test_only_the_secret_changes(frame, clean):
    assert DEFAULT.json(frame.encode())[0].decode() == clean
    assert DEFAULT.json(clean.encode()) == (clean.encode(), 0)


@pytest.mark.parametrize("frame", REDACTED["kept"])
def test_values_that_resemble_secrets_are_not_changed(frame):
    data = frame.encode()
    assert DEFAULT.json(data) == (data, 0)
    assert DEFAULT.json(data)[0] is data


@pytest.mark.parametrize(
    "value",
    [
        {"a": 'Missing "password":', "session": "hunter2"},
        {"a": "{'password':", "b": "c"},
        {"a": '"password" = ', "b": 1},
        {"a": '{"password": ', "b": ["c"]},
        ["password=", 123456, "x"],
        {"card": 4111111111111111},
    ],
)
def test_a_closing_quote_is_not_taken_for_the_start_of_a_value(value):
    for frame in (json.dumps(value).encode(), msgspec.json.encode(value)):
        assert policy("strict").json(frame) == (frame, 0)


def test_a_secret_after_such_a_closing_quote_is_replaced():
    frame = b'{"a":"Missing \\"password\\":","b":{"password":"hunter2"}}'
    assert DEFAULT.json(frame) == (frame.replace(b"hunter2", b"[redacted:password]"), 1)


def test_an_escape_before_a_match_is_not_split():
    # The `n` of the escaped line break would make `ntn_`, the prefix of another service.
    frame = b'{"t":"one\\ntn_%s"}' % (b"a1B2" * 12)
    clean, _ = DEFAULT.json(frame)
    assert clean == rb'{"t":"one\n[redacted:service-token]"}'


def test_numbers_order_duplicates_and_whitespace_do_not_change():
    frame = b'{ "a":1.50,"a":1E+2 , "password" :  "x1",\t"n":12345678901234567890123 }'
    assert DEFAULT.json(frame)[0] == frame.replace(b'"x1"', b'"[redacted:password]"')


# Pieces for difficult combinations: names, separators, nested quotes, partial escapes.
_PIECES = st.sampled_from(
    ["password", "token", "requestState", "ghp_" + "a1B2" * 9, "Bearer abc123def456", "\\", '"',
     "'", "=", ": ", "\n", "\\u00", "u0022", "é", "\x7f", "😀", " ", "/", "://u:p@h", "[", "]",
     "-----BEGIN PRIVATE KEY-----\nabc\\", "?session_id=abcdefgh", "AKIA" + "ABCD" * 4, "&", "<",
     ">", "n", "api_key", "value", "name", "sk-" + "a1B2" * 9, "hunter2", ",", "-", "--",
     '"password":', "'token': ", "secret="]
)  # fmt: skip
_TEXT = st.lists(_PIECES, max_size=12).map("".join)
_JSON = st.recursive(
    _TEXT | st.integers() | st.booleans() | st.none() | st.just(4111111111111111),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(_TEXT, inner, max_size=4)
        | inner.map(json.dumps)
        | inner.map(lambda v: json.dumps(v, ensure_ascii=False).replace('"', "\\u0022"))
    ),
    max_leaves=8,
)


def shape(value):
    """Return the structure of a value, with types in place of strings and without keys."""
    if isinstance(value, dict):
        return [shape(v) for v in value.values()]
    if isinstance(value, list):
        return [shape(v) for v in value]
    return type(value) if isinstance(value, str) else value


@given(_JSON, st.booleans(), st.sampled_from(["default", "strict"]))
def test_redacted_json_keeps_its_structure_and_is_not_redacted_again(value, ascii_only, name):
    frame = json.dumps(value, ensure_ascii=ascii_only).encode()
    clean, count = policy(name).json(frame)
    before, after = msgspec.json.decode(frame), msgspec.json.decode(clean)
    # Secrets may also be keys, and two keys may become equal.
    if len(re.findall(rb"\[redacted:[a-z-]+\]\\*\" ?:", clean)) == 0:
        assert shape(before) == shape(after)
    assert (count == 0) == (clean is frame)
    again, _ = policy(name).json(clean)
    assert again == clean


@given(st.binary(max_size=200) | _TEXT.map(str.encode))
def test_any_bytes_can_be_redacted(data):
    clean, count = policy("strict").text(data)
    assert (count == 0) == (clean == data)


@pytest.mark.slow
def test_many_near_misses_do_not_take_quadratic_time():
    for unit in (b'\\"password', b'[[["token":[', b"://a:b", b"-----BEGIN PRIVATE KEY-----",
                 b"token=", b"\\\\\\\\", b"a@a.", b"4111 ", b'"', b"Bearer ", b"server=",
                 b'"password":"\\\\\\', b"curl -u ", b"machine x login y password",
                 b"sk-" + b"a" * 40, b"eyJ" + b"a" * 12 + b"."):  # fmt: skip
        policy("strict").text(unit * (200_000 // len(unit)))


def test_equal_session_ids_and_request_states_stay_equal_and_others_different():
    first = policy("default").url("/messages/?session_id=0123456789abcdef")
    again = policy("none").url("/messages/?session_id=0123456789abcdef")
    other = policy("default").url("/messages/?session_id=0123456789abcdee")
    assert first == again != other
    assert first[0] == f"/messages/?session_id={hashed('session-id', '0123456789abcdef')}"
    sent = DEFAULT.json(b'{"result":{"requestState":"a\\u00e9/b"}}')[0]
    echo = DEFAULT.json('{"params":{"requestState":"aé\\/b"}}'.encode())[0]
    assert sent.partition(b"requestState")[2][:50] == echo.partition(b"requestState")[2][:50]


def test_headers_are_an_allowlist_with_hashed_session_ids():
    kept, count = DEFAULT.headers(
        [
            ("Content-Type", "application/json"),
            ("Authorization", "Bearer x"),
            ("X-Api-Key", "x"),
            ("Mcp-Session-Id", "s1"),
            ("Accept", "a"),
            ("accept", "b"),
        ]
    )
    assert kept == {
        "content-type": "application/json",
        "mcp-session-id": hashed("session-id", "s1"),
        "accept": "a, b",
    }
    assert count == 1


def test_a_flag_names_the_next_word():
    command = ["npx", "server", "--api-key", "abc", "--token=xyz12", "-H", "X-Api-Key: abc123def"]
    clean, count = DEFAULT.argv(command)
    assert clean == [
        "npx", "server", "--api-key", "[redacted:api-key]", "--token=[redacted:token]", "-H",
        "X-Api-Key: [redacted:api-key]",
    ]  # fmt: skip
    assert count == 3
    assert DEFAULT.argv(["git", "--no-token", "--verbose"]) == (
        ["git", "--no-token", "--verbose"],
        0,
    )


def test_rules_are_switched_by_name():
    frame = b'{"a":"jo@mail.example.org","password":"x1"}'
    assert policy("default").json(frame)[1] == 1
    assert policy("default,+emails").json(frame)[1] == 2
    assert policy("default,+emails,-keys").json(frame)[1] == 1
    assert policy("none").json(frame) == (frame, 0)
    assert policy(" default , -jwt,+emails").name == "default,+emails,-jwt"
    assert policy("-jwt").name == "default,-jwt"
    assert policy("strict").rules == frozenset(RULES)


@pytest.mark.parametrize(
    ("command", "secret"),
    [
        (["curl", "-u", "jo:hunter22", "https://h.example"], "hunter22"),
        (["mysql", "-u", "root", "-phunter22"], "hunter22"),
        (["sh", "-c", "sshpass -p hunter22 ssh h.example"], "hunter22"),
        (["redis-cli", "-a", "hunter22"], "hunter22"),
        (["server", "--pass", "hunter22"], "hunter22"),
    ],
)
def test_short_options_of_known_commands_are_redacted(command, secret):
    clean, count = DEFAULT.argv(command)
    assert count == 1
    assert len(clean) == len(command)
    assert secret not in " ".join(clean)
    assert policy("none").argv(command) == (command, 0)


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        *((term, False) for term in ("example", "sample", "abcde", "aaaaaa", "00000")),
        *((mask, True) for mask in ("xxxxxx", "*****")),
    ],
)
def test_of_the_terms_that_trufflehog_ignores_only_masks_are_kept(value, is_kept):
    text = f"API_KEY={value}".encode()
    assert (policy().text(text)[0] == text) is is_kept


QUIET = [b'{"id":%d,"result":{"text":"%b"}}' % (number, b"lorem\\n" * 9) for number in range(99)]
TELLING = [
    *[
        json.dumps({"text": made_up(text)}).encode()
        for row in (*ALL_PATTERNS, *NAME_RULES)
        for text in row.fires
    ],
    *[b'{"text":"%b%b"}' % (row.prefixes[0].encode(), b"aB3" * 30) for row in TOKEN_PREFIXES],
    b'{"text":"pa\\u0073sword: hunter2 and more"}',
    b'{"text":"%70assword%3Dhunter2%26and=more"}',
    b'{"pass\n":"word"}',
]


@pytest.mark.parametrize("text", ["default", "strict", "none", "none,+jwt"])
@given(st.data())
@settings(max_examples=settings.default.max_examples // 2)
def test_clean_frames_are_those_that_json_leaves_unchanged(text, data):
    frames = data.draw(st.lists(st.sampled_from(TELLING), max_size=20))
    frames = data.draw(st.permutations([*frames, *QUIET]))
    clean = policy(text).clean_frames(frames)
    assert all(policy(text).json(frame) == (frame, 0) for frame in clean)
    if text != "strict":
        assert clean >= set(QUIET)
