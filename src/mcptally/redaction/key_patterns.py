"""Names that mark the value beside them as secret: rules, and tables of words.

`secret_patterns` has the secrets that are recognised by their own form. The rows are Python, not
TOML: parsing a file would delay every start of the recorder.
"""

from typing import Final, NamedTuple

from mcptally.redaction.secret_patterns import DEFAULT


class NameRule(NamedTuple):
    """A rule by which the *name* beside a value marks the value as secret.

    Fields as in `secret_patterns.SecretPattern`; the names are in the tables below.
    """

    name: str
    title: str
    source: str = "mcptally"
    on: frozenset[str] = DEFAULT
    fires: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def words(text: str) -> frozenset[str]:
    """The words of a text as a set; whitespace separates them."""
    return frozenset(text.split())


NAME_RULES: Final[tuple[NameRule, ...]] = (
    NameRule(
        name="keys",
        title="String values under secret-looking JSON keys, also in JSON inside strings",
        fires=('{"password":"hunter2"}', '{"t":"{\\"api_key\\":\\"abc\\"}"}'),
        silent=('{"progressToken":"7"}', '{"max_tokens":"7"}', '{"password":{"type":"string"}}'),
    ),
    NameRule(
        name="assignments",
        title="Values after secret-looking names in text, queries, headers and flags",
        fires=("DB_PASSWORD=hunter2", "?access_token=abc123", "X-Api-Key: <20>"),
        silent=("password: required", "Unexpected token: }", "token = get_token()"),
    ),
    NameRule(
        name="session-ids",
        title="Session ids in URLs and under Mcp-Session-Id: hashed, so that equal ids stay equal",
        source="MCP 2025-11-25, transports, session management",
        fires=("/messages/?session_id=<32>",),
        silent=("/sessions", "?session=1"),
    ),
    NameRule(
        name="request-state",
        title="`requestState` of an input_required result: hashed, so that its echo stays equal",
        source="MCP 2026-07-28, input_required results",
        fires=('{"requestState":"<30>"}',),
        silent=('{"requestState":{"type":"string"}}',),
    ),
)

WORDS_BEFORE_HARMLESS_TOKEN: Final = words(
    """pagination paging forward backward marker skip list scroll iterator watch request
    idempotency fencing concurrency version revision correlation trace starting ending
    syntax eof keyword word text string punctuation operator identifier bracket theme spacing
    placeholder progress page nextpage next prev previous continuation continue sync cursor
    start end stop pad eos bos unk sep cls mask special max min per input output total cached
    completion prompt
    first last color design native erc20 base quote lp reward governance unexpected invalid
    resume delta change partial sub num number n count symbol instrument asset buy sell from
    to pool"""
)
"""Words before `token` that mean a cursor, a language model's token or a coin: not a secret."""

VERBS_OF_SETTINGS: Final = words(
    """strip include exclude require requires required has have is was show hide mask redact
    validate omit skip should needs need support supports allow allows enable enabled disable
    disabled without missing forget revoke rotate no use uses with"""
)
"""First words of names of settings, such as `stripCredentials`: what follows names no value."""

WORDS_BEFORE_KEY: Final = words(
    """api secret private access signing sign encryption encrypt enc decryption master shared
    account license ssh deploy admin auth authentication authorization subscription hmac crypto
    rsa pgp gpg tls ssl aes jwt functions ocp creds anon role openai anthropic claude gemini
    mistral groq cohere deepseek perplexity openrouter huggingface replicate elevenlabs tavily
    serper serpapi firecrawl stripe paypal sendgrid mailgun twilio supabase"""
)
"""Words before `key` that mean a credential; `key` alone does not."""

WORDS_BEFORE_RANDOM_KEY: Final = words(
    """client app application service server storage webhook session consumer developer dev rest
    integration write read publishable bot sdk ingest db database"""
)
"""Words before `key` that mean a credential if the value looks random, else a plain identifier."""

WORDS_BEFORE_HARMLESS_KEY: Final = words(
    """public pub primary foreign sort partition cache row column unique composite candidate index
    lookup group object bucket file blob image s3 path dict map json config setting settings env
    project team issue epic board space ticket sprint organization organisation org user
    site hot idempotency dedup dedupe routing message event metric feature flag translation i18n
    locale string resource node parent child component layer style document sheet hash range sha
    host volume press down up left right home end delete enter escape tab ctrl alt shift meta"""
)
"""Words before `key` in capitals (`CACHE_KEY`) that never mean a credential."""

SECRET_NAMES: Final[dict[str, str]] = {
    word: label
    for label, words in {
        "password": "password passwd pwd passphrase passcode userpassword dbpassword"
        " passwort"
        " motdepasse contrasena userpass dbpass pgpassword mysqlpwd storepass"
        " keypass sshpass srcstorepass deststorepass",
        "secret": "secret clientsecret appsecret sharedsecret secretvalue secretkey consumersecret"
        " webhooksecret totpsecret secretstring secretaccesskey mnemonic seedphrase codeverifier"
        " secretkeybase",
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
"""Key name, in lower case and without separators → the kind of secret under it."""
