"""What counts as a secret beside `secret_shapes.py`: key names that say that a value is secret.

`redact.py` reads these rows and those of `secret_shapes.py`. They are Python and not TOML
because the recorder pays for them at every start.
"""

from typing import Final, NamedTuple

from mcptally.redaction.secret_patterns import DEFAULT, PREFIXES, SHAPES, Prefix, Shape

__all__ = [
    "KEY_OWNERS",
    "NEVER_FIRST",
    "PLACES",
    "PREFIXES",
    "SHAPES",
    "SQUASHED",
    "Place",
    "Prefix",
    "Shape",
    "words",
]


class Place(NamedTuple):
    """A place where the *name* beside a value says that the value is secret.

    Fields as in `secret_shapes.Shape`; what the names are is in the tables below.
    """

    name: str
    title: str
    source: str = "mcptally"
    on: frozenset[str] = DEFAULT
    fires: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


PLACES: Final[tuple[Place, ...]] = (
    Place(
        name="keys",
        title="String values under secret-looking JSON keys, also in JSON inside strings",
        fires=('{"password":"hunter2"}', '{"t":"{\\"api_key\\":\\"abc\\"}"}'),
        silent=('{"progressToken":"7"}', '{"max_tokens":"7"}', '{"password":{"type":"string"}}'),
    ),
    Place(
        name="assignments",
        title="Values after secret-looking names in text, queries, headers and flags",
        fires=("DB_PASSWORD=hunter2", "?access_token=abc123", "X-Api-Key: <20>"),
        silent=("password: required", "Unexpected token: }", "token = get_token()"),
    ),
    Place(
        name="session-ids",
        title="Session ids in URLs and under Mcp-Session-Id: hashed, so that pairing works",
        source="MCP 2025-11-25, transports, session management",
        fires=("/messages/?session_id=<32>",),
        silent=("/sessions", "?session=1"),
    ),
    Place(
        name="request-state",
        title="`requestState` of an input_required result: hashed, so that its echo still pairs",
        source="MCP 2026-07-28, input_required results",
        fires=('{"requestState":"<30>"}',),
        silent=('{"requestState":{"type":"string"}}',),
    ),
)

NEVER_FIRST: Final = words(
    """progress page nextpage next prev previous continuation continue sync cursor start end stop
    pad eos bos unk sep cls mask special max min per input output total cached completion prompt
    first last color design native erc20 base quote lp reward governance unexpected invalid
    resume delta change partial sub num number n count"""
)
"""Words before `token` that make it a cursor, a model's token or a coin, not a credential."""

KEY_OWNERS: Final = words(
    """api secret private access signing sign encryption encrypt decryption master service shared
    account license ssh deploy admin auth authentication authorization client app application
    subscription storage webhook hmac server crypto rsa pgp gpg tls ssl aes jwt functions ocp
    consumer developer dev rest integration write read publishable project bot team session"""
)
"""Words before `key` that make it a credential; a bare `key` is only a name."""

SQUASHED: Final[dict[str, str]] = {
    word: label
    for label, words in {
        "password": "password passwd pwd passphrase passcode userpassword dbpassword passwort"
        " motdepasse contrasena userpass dbpass pgpassword mysqlpwd",
        "secret": "secret clientsecret appsecret sharedsecret secretvalue secretkey consumersecret"
        " webhooksecret totpsecret secretstring secretaccesskey mnemonic seedphrase",
        "token": "token accesstoken refreshtoken authtoken apitoken idtoken bearertoken"
        " sessiontoken csrftoken xsrftoken securitytoken usertoken bottoken clienttoken jwt"
        " personalaccesstoken oauthtoken logintoken devicetoken",
        "api-key": "apikey accesskey privatekey signingkey encryptionkey masterkey authkey"
        " xapikey apisecret accountkey sharedkey servicekey subscriptionkey sshkey licensekey",
        "authorization": "authorization proxyauthorization xauthorization",
        "cookie": "cookie setcookie cookies",
        "credential": "credential credentials",
    }.items()
    for word in words.split()
}
"""Whole key names, lower case and without separators, and what they hold."""
