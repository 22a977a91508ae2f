"""Hit rates on everyday texts, and keys that span several lines of stderr.

`everyday.json` has texts with one secret, which stands between `«` and `»`, and texts that look
similar and have none. They follow what commands, logs, chats and APIs print, not the rules.
"""

import itertools
import json
from pathlib import Path

import mcptally as mt
from mcptally.redaction.policy import policy
from mcptally.transcript.writer.event_line import EventLineEncoder
from tests.transcripts import event, opened, write

DEFAULT = policy("default")
TEXTS = json.loads(Path(__file__).with_name("everyday.json").read_text(encoding="utf-8"))


def _in_result(text: str) -> bytes:
    body = {"content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": body}).encode()


def test_everyday_secrets_are_hidden_in_text_and_in_json():
    missed = []
    for marked in itertools.chain(*TEXTS["secrets"].values()):
        secret = marked[marked.index("«") + 1 : marked.index("»")]
        text = marked.replace("«", "").replace("»", "")
        plain = DEFAULT.text(text.encode())[0].decode()
        clean = json.loads(DEFAULT.json(_in_result(text))[0])["result"]["content"][0]["text"]
        if secret in plain or secret in clean:
            missed.append(text)
    assert missed == []


def test_everyday_texts_without_a_secret_stay_as_they_are():
    changed = {
        text: DEFAULT.json(_in_result(text))[0]
        for text in itertools.chain(*TEXTS["innocent"].values())
        if DEFAULT.text(text.encode())[1] or DEFAULT.json(_in_result(text))[1]
    }
    assert changed == {}


KEY = [
    "loading the key",
    "-----BEGIN " + "RSA PRIVATE KEY-----",
    *["MIIEowIBAAKCAQEA" + "aB3dE5gH7jK9" * 4] * 3,
    "-----END " + "RSA PRIVATE KEY-----",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
]


def test_a_private_key_on_stderr_is_hidden_by_the_recorder_and_by_redact(tmp_path):
    encoder = EventLineEncoder("r1", DEFAULT, is_clean=lambda _: False)
    said = [encoder.stderr_fields(line.encode())["text"] for line in KEY]
    assert said[2:5] == ["[redacted:private-key]"] * 3
    events = [event("stderr", n, text=line) for n, line in enumerate(KEY, 1)]
    write(tmp_path / "a.jsonl", [opened(), *events])
    mt.redact(tmp_path / "a.jsonl", tmp_path / "out")
    (copy,) = (tmp_path / "out").rglob("*.jsonl")
    assert "aB3dE5gH7jK9" not in copy.read_text()
    assert "9fceb02d0ae598e95dc970b74767f19372d61af8" in copy.read_text()
