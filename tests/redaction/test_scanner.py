"""The scan finds every occurrence, and a search near the hits misses nothing."""

import random
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptally.redaction.policy import ALL_PATTERNS, policy
from mcptally.redaction.scanner import Hit, TextSearch, matches_near
from mcptally.redaction.secret_patterns import SECRET_PATTERNS, TOKEN_PREFIXES
from mcptally.redaction.token_checks import MATCH_REACH

PREFIXED = [prefix for row in TOKEN_PREFIXES for prefix in row.prefixes]
OVERLAPPING = ["key", "token", "kent", "hook", "okey", "to", "tokens", "y"]


def everywhere(texts, data):
    """Return every occurrence of every text, found with one regular expression per text."""
    found = [
        (match.start(), rank)
        for rank, text in enumerate(texts)
        for match in re.finditer(b"(?=%b)" % re.escape(text.encode()), data)
    ]
    encoded = [text.encode() for text in texts]
    return [Hit(at, at + len(encoded[r]), encoded[r]) for at, r in sorted(found)]


def filled(pieces, seed):
    """Return the pieces with random text between them."""
    rng = random.Random(seed)
    out = b""
    for piece in pieces:
        out += rng.choices([b"", b'"', b"lorem ipsum ", b"a" * rng.randrange(90)])[0] + piece
    return out


@pytest.mark.slow
@pytest.mark.parametrize("texts", [PREFIXED, OVERLAPPING], ids=["prefixes", "overlapping"])
@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(data=st.data())
def test_a_search_finds_every_occurrence(texts, data):
    pieces = st.sampled_from([text.encode() for text in texts])
    parts = data.draw(st.lists(pieces | pieces.map(lambda p: p[:-1]) | st.binary(max_size=6)))
    frame = filled(parts, len(parts))
    wanted = everywhere(texts, frame)
    assert TextSearch(texts).find(frame) == wanted


def test_a_text_that_can_overlap_itself_is_refused():
    with pytest.raises(ValueError, match="overlap itself"):
        TextSearch(["xox"])


# Parts of what the patterns match, to be combined at random.
_PARTS = st.sampled_from(
    [b"Bearer ", b"bearer%20", b"basic ", b"Basic\t", b"dXNlcjpwYXNzd29yZDEyMw==", b"://", b"u:p",
     b"user:", b"@", b"db.local", b"127.", b";", b"server=", b"Password", b"pwd", b"accountkey",
     b"SharedAccessKey", b"=", b" = ", b"x1y2z3", b'"', b"\\", b"bot", b"123456789", b":AA",
     b"a1_B" * 8 + b"c", b"z", b"\n", b" ", b"x" * 70, b"server=" + b"y" * 190, b"/", b"n"]
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", [row for row in SECRET_PATTERNS if row.name in MATCH_REACH], ids=lambda r: r.name
)
@given(parts=st.lists(_PARTS, max_size=30))
def test_a_search_near_the_needles_finds_the_same_as_a_full_search(row, parts):
    data = b"".join(parts)
    low = data.lower()
    starts = {
        match.start() for n in row.needles for match in re.finditer(re.escape(n.encode()), low)
    }
    pattern = re.compile(row.pattern.encode())
    near = [m.span() for m in matches_near(pattern, data, sorted(starts), *MATCH_REACH[row.name])]
    assert near == [m.span() for m in pattern.finditer(data)]


def test_every_entry_of_match_reach_names_a_pattern_with_needles():
    assert set(MATCH_REACH) <= {row.name for row in ALL_PATTERNS if all(row.needles)}


@pytest.mark.slow
@pytest.mark.parametrize("text", ["auth=", "?auth=", "r8_", "eyJ-", "sk-a-"])
def test_repeated_near_misses_are_not_all_tried(text):
    # Count the calls, not the time: each attempted match may read to the end of the text.
    hide = policy()
    hide.text(text.encode())
    data = text.encode() * (40_000 // len(text))
    calls = 0

    def count(_frame, event, arg):
        nonlocal calls
        calls += event == "c_call" and arg.__name__ == "match"

    sys.setprofile(count)
    try:
        hide.text(data)
    finally:
        sys.setprofile(None)
    assert calls < len(data) / 20


@pytest.mark.parametrize("text", ["r8_", "sk-a-", "eyJ-"])
def test_a_token_among_many_token_prefixes_is_found(text):
    token = b"ghp_" + b"a1B2" * 9
    for data in (token + b" " + text.encode() * 1_000, text.encode() * 8 + b" " + token):
        clean, _ = policy().text(data)
        assert token not in clean


@pytest.mark.slow
def test_a_frame_with_too_many_hits_is_replaced_as_a_whole():
    data = b'{"a":"' + b"key=a;" * 200_000 + b'"}'
    assert policy().json(data) == (b'"[redacted:unsearchable]"', 1)
    assert policy().text(data) == (b"[redacted:unsearchable]", 1)
    usual = b'{"a":"' + b"the key of it all; " * 20_000 + b'"}'
    assert policy().json(usual) == (usual, 0)
