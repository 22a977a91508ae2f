"""Rows that describe secrets by their form: by the prefix of a token, or by the text around it.

The recorder's redaction uses these rows, and so does the finding `leak.secret`. The rows are
Python, not TOML: parsing a file would delay every start of the recorder. A pattern is compiled
when it is first used.

In examples, `<20>` stands for twenty made-up characters of a token, so that no line of this file
looks like a real credential to a scanner.
"""

from typing import Final, NamedTuple

DEFAULT: Final = frozenset({"default", "strict"})
"""`on` of a rule that finds secrets."""
STRICT: Final = frozenset({"strict"})
"""`on` of a rule that also finds other personal or random-looking data."""


class TokenPrefix(NamedTuple):
    """A token with a prefix by which it is recognised."""

    name: str
    """Id of the rule, and the name in `[redacted:NAME]`."""
    title: str
    prefixes: tuple[str, ...]
    """The prefixes; they are a part of the token."""
    tail: str
    """Regular expression for the rest of the token; linear, without nested repetition."""
    source: str = "mcptally"
    """The standard that defines the form; `mcptally` if we chose it."""
    on: frozenset[str] = DEFAULT
    """Base policies that include this rule."""
    silent: tuple[str, ...] = ()
    """Example texts in which the rule must find nothing."""


class SecretPattern(NamedTuple):
    """A secret that is recognised by the text around it; fields as in `TokenPrefix`."""

    name: str
    title: str
    needles: tuple[str, ...]
    """Lower-case texts: every match contains one of them. `""` searches every frame."""
    pattern: str
    """Regular expression; its group `secret` is replaced."""
    check: str = ""
    """Name of a further check of the secret in `token_checks.CHECKS`."""
    source: str = "mcptally"
    on: frozenset[str] = DEFAULT
    fires: tuple[str, ...] = ()
    """Example texts in which the rule must find a secret."""
    silent: tuple[str, ...] = ()


_URL_SAFE: Final = r"[A-Za-z0-9_\-]"
_ALPHANUMERIC: Final = r"[A-Za-z0-9]"
_MIXED: Final = r"(?=[a-z_\-]{0,60}[A-Z0-9])"
"""Requires a capital or a digit: lower-case words joined by hyphens are prose or a CSS class."""

_TWO_DIGITS_OR_CAPITAL: Final = r"(?=(?:[A-Za-z_\-]{0,30}[0-9]){2}|[a-z0-9_\-]{0,60}[A-Z])"

ENCODED: Final = TokenPrefix(
    name="base64-secret",
    title="Base64 of a text in which another rule finds a secret: JSON, headers, assignments",
    source="RFC 4648",
    prefixes=(
        *("eyJ", "eyA", "ewo", "ew0", "W3s", "WyJ"),  # {" { {LF {CR [{ ["
        *("QXV", "YXV", "cGF", "UGF", "UEF", "dG9", "c2V", "YXB", "QVB", "QmV"),  # Auth …, pass …
        *("LS0", "dXN", "Y3V", "R0V", "UE9", "ZXh", "REJ"),  # -----BEGIN, user, curl, GET, POST
    ),
    tail=r"[A-Za-z0-9+/_\-]{12,100000}={0,2}",
    silent=("eyJvIjoxMH0xMjM0NTY3OA", "eyJ1c2VyIjogImpvIiwgImNpdHkiOiAiUm9tZSJ9"),
)  # fmt: skip
"""The row whose matches are decoded and searched."""

TOKEN_PREFIXES: Final[tuple[TokenPrefix, ...]] = (
    TokenPrefix(
        name="anthropic-key",
        title="Anthropic API or OAuth key",
        prefixes=("sk-ant-",),
        tail=_URL_SAFE + r"{16,}",
    ),
    TokenPrefix(
        name="openai-key",
        title="OpenAI key, and keys of services that use the same form",
        prefixes=("sk-", "sess-"),
        tail=_MIXED + _URL_SAFE + r"{20,}",
        silent=("sk-loading-indicator-container", "risk-management-strategies-and-more"),
    ),
    TokenPrefix(
        name="github-token",
        title="GitHub token: personal, OAuth, app, refresh, fine-grained",
        prefixes=("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        tail=r"[A-Za-z0-9_]{20,}",
        silent=("ghp_short",),
    ),
    TokenPrefix(
        name="gitlab-token",
        title="GitLab token: personal, deploy, runner, trigger, feed, agent, CI",
        prefixes=(
            "glpat-", "gldt-", "glrt-", "glptt-", "glft-", "glagent-", "glcbt-", "glsoat-",
            "glimt-", "gloas-", "GR1348941-",
        ),
        tail=r"[A-Za-z0-9_\-.]{16,}",
    ),
    TokenPrefix(
        name="slack-token",
        title="Slack token: bot, user, app, refresh, configuration",
        prefixes=("xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxo-", "xoxe-", "xoxe.", "xoxc-",
                  "xoxd-", "xapp-"),
        tail=r"(?=[A-Za-z%\-]{0,30}[0-9])[A-Za-z0-9%\-.]{14,}",
    ),
    TokenPrefix(
        name="aws-access-key",
        title="AWS access key id, long-lived or temporary",
        prefixes=("AK", "AS"),
        tail=r"IA[0-9A-Z]{16}(?![A-Za-z0-9])",
        silent=("AKIA is a prefix", "ASIANLANGUAGESUPPORTS"),
    ),
    TokenPrefix(
        name="google-key",
        title="Google API key, OAuth access token or client secret",
        prefixes=("AIz", "ya29.", "GOCSPX-"),
        tail=r"(?=[A-Za-z_\-]{0,80}[0-9_\-])[A-Za-z0-9_\-.]{20,}",
    ),
    TokenPrefix(
        name="npm-token",
        title="npm access token",
        prefixes=("npm_",),
        tail=_ALPHANUMERIC + r"{36}(?![A-Za-z0-9_])",
        silent=("npm_package_devDependencies_typescript_eslint",),
    ),
    TokenPrefix(
        name="pypi-token",
        title="PyPI or TestPyPI token",
        prefixes=("pypi-",),
        tail=r"Ag" + _URL_SAFE + r"{40,}",
    ),
    TokenPrefix(
        name="huggingface-token",
        title="Hugging Face token: user or organisation",
        prefixes=("hf_", "api_org_"),
        tail=_MIXED + _ALPHANUMERIC + r"{30,}",
    ),
    TokenPrefix(
        name="sendgrid-key",
        title="SendGrid API key",
        prefixes=("SG.",),
        tail=_URL_SAFE + r"{16,}\." + _URL_SAFE + r"{16,}",
    ),
    TokenPrefix(
        name="stripe-key",
        title="Stripe key or webhook secret",
        prefixes=("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
        tail=r"[A-Za-z0-9+/=]{16,}",
    ),
    TokenPrefix(
        name="jwt",
        title="JSON Web Token (RFC 7519) or its encrypted form",
        source="RFC 7519",
        prefixes=("eyJ",),
        tail=r"[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{4,}(?:\.[A-Za-z0-9_\-]*){1,3}",
        silent=("eyJhbGciOiJIUzI1NiJ9 alone is a header without a token",),
    ),
    TokenPrefix(
        name="hex-token",
        title="Token of a service whose prefix is followed by hexadecimal digits only",
        prefixes=("key-", "fc-", "dop_v1_", "doo_v1_", "dor_v1_", "shpat_", "shpca_", "shppa_",
                  "shpss_", "sntryu_", "pul-", "rubygems_", "SK", "sk_", "dapi", "sqp_", "squ_",
                  "sqa_", "bkua_", "e2b_", "CLOJARS_"),
        tail=r"[0-9a-f]{32,64}(?![A-Za-z0-9])",
        silent=("fc-button-primary-active-disabled", "key-value-store"),
    ),
    TokenPrefix(
        name="service-token",
        title="Token of another service with a prefix of its own",
        prefixes=(
            "gsk_",  # Groq
            "pplx-",  # Perplexity
            "r8_",  # Replicate
            "xai-",  # xAI
            "tvly-",  # Tavily
            "nvapi-",  # NVIDIA
            "ctx7sk-",  # Context7
            "figd_",  # Figma
            "ntn_",  # Notion
            "lin_api_", "lin_oauth_",  # Linear
            "dckr_pat_", "dckr_oat_",  # Docker Hub
            "glsa_", "glc_",  # Grafana
            "sntrys_",  # Sentry
            "NRAK-",  # New Relic
            "sbp_", "sb_secret_",  # Supabase
            "hvs.", "hvb.", "hvr.",  # HashiCorp Vault
            "PMAK-",  # Postman
            "pscale_tkn_", "pscale_pw_", "pscale_oauth_",  # PlanetScale
            "dp.pt.", "dp.st.", "dp.ct.", "dp.sa.",  # Doppler
            "phx_",  # PostHog
            "sq0csp-", "sq0atp-",  # Square
            "AGE-SECRET-KEY-",
            "ATATT3", "ATCTT3",  # Atlassian
            "HRKU-",  # Heroku
            "CFPAT-",  # Contentful
            "fo1_",  # Fly.io
            "apify_api_",
            "ops_eyJ",  # 1Password
            "bb_live_",  # Browserbase
            "csk-",  # Cerebras
            "CCIPAT_",  # CircleCI
            "EZAK", "EZTK",  # EasyPost
            "FLWSECK",  # Flutterwave
            "hcaik_",  # Honeycomb
            "jina_",
            "lsv2_",  # LangSmith
            "nfp_",  # Netlify
            "pcsk_",  # Pinecone
            "pnu_",  # Prefect
            "sgp_",  # Sourcegraph
            "tskey-",  # Tailscale
            "vercel_blob_rw_",
        ),
        tail=_TWO_DIGITS_OR_CAPITAL + _URL_SAFE + r"{18,}",
        silent=("xai-grok-large-preview-2", "glc_short1"),
    ),
    TokenPrefix(
        name="base64-token",
        title="Token of a service whose prefix is followed by base64",
        prefixes=("BBDC-", "fm2_"),
        tail=_TWO_DIGITS_OR_CAPITAL + r"[A-Za-z0-9+/=_\-]{40,}",
        silent=("BBDC-short", "fm2_station_frequency"),
    ),
    TokenPrefix(
        name="brave-key",
        title="Brave Search API key",
        prefixes=("BSA",),
        tail=_URL_SAFE + r"{28}(?![A-Za-z0-9_\-])",
        silent=("BSA rule 2",),
    ),
    TokenPrefix(
        name="crates-token",
        title="crates.io API token",
        prefixes=("cio",),
        tail=_ALPHANUMERIC + r"{32}(?![A-Za-z0-9_\-])",
        silent=("cio-service-name",),
    ),
    TokenPrefix(
        name="fireworks-key",
        title="Fireworks API key",
        prefixes=("fw_",),
        tail=_ALPHANUMERIC + r"{24}(?![A-Za-z0-9_\-])",
        silent=("fw_rule_2",),
    ),
    TokenPrefix(
        name="nuget-key",
        title="NuGet API key",
        prefixes=("oy2",),
        tail=r"[a-z0-9]{43}(?![A-Za-z0-9_\-])",
        silent=("oy2 is short",),
    ),
    TokenPrefix(
        name="notion-secret",
        title="Notion integration secret of the older form",
        prefixes=("secret_",),
        tail=_ALPHANUMERIC + r"{43}(?![A-Za-z0-9_\-])",
        silent=("secret_manager_access_of_all_the_good_users_x1",),
    ),
    TokenPrefix(
        name="artifactory-key",
        title="JFrog Artifactory API key",
        prefixes=("AKCp",),
        tail=_ALPHANUMERIC + r"{69}(?![A-Za-z0-9_\-])",
        silent=("AKCp5",),
    ),
    TokenPrefix(
        name="alibaba-key",
        title="Alibaba Cloud access key id",
        prefixes=("LTAI",),
        tail=r"(?=[A-Za-z]{0,15}[0-9])" + _ALPHANUMERIC + r"{16,24}(?![A-Za-z0-9_\-])",
        silent=("LTAI5",),
    ),
    TokenPrefix(
        name="razorpay-key",
        title="Razorpay key id",
        prefixes=("rzp_",),
        tail=r"(?:live|test)_[A-Za-z0-9]{14}(?![A-Za-z0-9_\-])",
        silent=("rzp_live_key",),
    ),
    TokenPrefix(
        name="facebook-token",
        title="Facebook or Instagram access token",
        prefixes=("EAA",),
        tail=_ALPHANUMERIC + r"{100,}(?![A-Za-z0-9_\-+/=])",
        silent=("EAAT is a medium",),
    ),
    TokenPrefix(
        name="yandex-key",
        title="Yandex Cloud API key",
        prefixes=("AQVN",),
        tail=_URL_SAFE + r"{35,38}(?![A-Za-z0-9_\-])",
        silent=("AQVN7",),
    ),
    TokenPrefix(
        name="google-refresh-token",
        title="Google OAuth refresh token",
        prefixes=("1//0",),
        tail=_URL_SAFE + r"{60,}",
        silent=("1//0 is no path",),
    ),
    TokenPrefix(
        name="discord-token",
        title="Discord bot token: the bot's number in base64, a time, a signature",
        prefixes=("MT", "Nz", "OD", "OT"),
        tail=r"[A-Za-z0-9]{21,26}\." + _URL_SAFE + r"{6}\."
        + _URL_SAFE + r"{27,40}(?![A-Za-z0-9_\-])",
        silent=("MTBF.report.of.the.last.month",),
    ),
    TokenPrefix(
        name="dynatrace-token",
        title="Dynatrace API or platform token",
        prefixes=("dt0c", "dt0s"),
        tail=r"[0-9]{2}\.[A-Z0-9]{8,24}\.[A-Z0-9]{64}",
        silent=("dt0c01.SAMPLE",),
    ),
    TokenPrefix(
        name="cloudflare-origin-key",
        title="Cloudflare origin CA key",
        prefixes=("v1.0-",),
        tail=r"[0-9a-f]{24}-[0-9a-f]{140,160}",
        silent=("v1.0-beta",),
    ),
    TokenPrefix(
        name="launchdarkly-key",
        title="LaunchDarkly SDK key",
        prefixes=("sdk-", "mob-"),
        tail=r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}(?![0-9a-f\-])",
        silent=("sdk-typescript-client",),
    ),
)  # fmt: skip

_B64: Final = r"[A-Za-z0-9+/=_\-.~]"

_BEGIN: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=[0-9\[]m))"
"""Start of a token: no letter or digit before it, except at the end of an escape or colour code."""

_BETWEEN_WORDS: Final = r"(?:[\s\x00\"',\\]|(?<=\\)[nrt]){1,24}"
"""What separates the words of a command: blanks, line breaks, quotes and commas of a list, NUL."""

_COMMAND: Final = r"(?:(?!(?<!\\)\\n|&&)[^|;\n]){0,300}?" + _BETWEEN_WORDS
"""The words between a command and one of its options."""

SECRET_PATTERNS: Final[tuple[SecretPattern, ...]] = (
    SecretPattern(
        name="command-password",
        title="Password in a short option of a command (`curl -u`, `mysql -p`, `redis-cli -a` …)",
        # Two lack their first letters: texts that overlap others need one more scan (`scanner`).
        needles=(
            "curl",
            "hpass",
            "mysql",
            "mariadb",
            "redis-cli",
            "mongo",
            "ocker login",
            "smbclient",
            "sqlcmd",
            "openssl",
            "securestring",
            "net use",
            "ldap",
            "nzip -",
            "7z ",
            "freerdp",
            "htpasswd",
            "wpa_pass",
            "mosquitto_",
            " login -",
            "qlplus",
            "ipmitool",
            "http -a",
            "snmp",
            "rabbitmqctl",
        ),
        pattern=(
            r"(?:\b|(?<=\\[nrt]))(?:"
            rf"curl\b{_COMMAND}(?:-[A-Za-z]{{0,6}}[uU]|--user|--proxy-user)(?:=|{_BETWEEN_WORDS})?"
            r"[^\s\x00\"'\\:,$<{\[]{0,100}[\"']?:[\"']?"
            rf"|sshpass\b{_COMMAND}-p{_BETWEEN_WORDS}?"
            rf"|(?:mysql|mariadb)[a-z\-]{{0,12}}\b{_COMMAND}-p"
            rf"|redis-cli\b{_COMMAND}(?:-a|--pass){_BETWEEN_WORDS}"
            rf"|mongo[a-z]{{0,8}}\b{_COMMAND}-p{_BETWEEN_WORDS}"
            rf"|(?:docker{_BETWEEN_WORDS}|[a-z]{{2,12}} (?:registry )?)login\b"
            rf"{_COMMAND}-p{_BETWEEN_WORDS}"
            rf"|smbclient\b{_COMMAND}-U{_BETWEEN_WORDS}?[^\s%\"'\\]{{1,60}}%"
            rf"|sqlcmd\b{_COMMAND}-P{_BETWEEN_WORDS}?"
            rf"|(?i:convertto-securestring)(?:{_BETWEEN_WORDS}-(?i:string|asplaintext|force)){{0,3}}"
            rf"{_BETWEEN_WORDS}(?!-)"
            rf"|net(?:\.exe)?{_BETWEEN_WORDS}use(?:r{_BETWEEN_WORDS}[^\s\"'/]{{1,60}}"
            rf"|{_COMMAND}(?:/(?i:user):|\\{{2,8}})[^\s\"']{{1,200}})"
            r"(?:[ \t]{1,4}|\\*[\"'],\s?\\*[\"'])(?![/*])"
            rf"|ldap[a-z]{{3,10}}\b{_COMMAND}-w{_BETWEEN_WORDS}"
            rf"|(?:unzip|zip)\b{_COMMAND}-P{_BETWEEN_WORDS}"
            rf"|7z[ar]?\b{_COMMAND}-p(?=\S*[0-9A-Z])"
            rf"|[a-z]{{0,3}}freerdp\b{_COMMAND}/p(?:assword)?:"
            rf"|htpasswd\b{_COMMAND}-[A-Za-z]{{0,6}}b[A-Za-z]{{0,3}}"
            rf"(?:{_BETWEEN_WORDS}[^\s\"']{{1,200}}){{2}}{_BETWEEN_WORDS}"
            rf"|wpa_passphrase{_BETWEEN_WORDS}[^\s\"']{{1,64}}{_BETWEEN_WORDS}"
            rf"|(?:mosquitto_[a-z]{{2,4}}|ipmitool)\b{_COMMAND}-P{_BETWEEN_WORDS}"
            rf"|sqlplus\b{_COMMAND}[A-Za-z0-9_]{{1,40}}/(?![/ ])"
            rf"|http -a{_BETWEEN_WORDS}[^\s:\"']{{1,60}}:"
            rf"|snmp[a-z]{{2,12}}\b{_COMMAND}-[AX]{_BETWEEN_WORDS}"
            rf"|rabbitmqctl\b{_COMMAND}(?:add_user|change_password){_BETWEEN_WORDS}"
            rf"[^\s\"']{{1,64}}{_BETWEEN_WORDS}"
            rf"|openssl\b{_COMMAND}-pass(?:in|out)?{_BETWEEN_WORDS}pass:"
            r")(?P<secret>[^\s\x00\"'\\,;`]{3,200})"
        ),
        check="not_a_placeholder",
        fires=(
            "curl -s -u admin:<12> https://h.example/",
            "mysql -h db -u root -p<12> shop",
            "sshpass -p <12> ssh jo@h.example",
            "redis-cli -h r -a <12> ping",
            "ConvertTo-SecureString '<12>' -AsPlainText -Force",
            "net use Z: \\\\srv\\share <12> /user:jo",
            "ldapsearch -x -D cn=admin -w <12>",
            '{"command": "curl", "args": ["-u", "admin:<12>"]}',
            "docker login -u jo -p <12> registry.example",
        ),
        silent=(
            "curl -u user:password https://h.example/",
            'curl -u "$USER:$TOKEN" https://h.example/',
            "curl -u jo https://h.example:8080/",
            "curl x | sort -u a:bcdef",
            "mysql -u root -p shop",
            "mysqldump --port 3306 -P 3307",
            "redis-cli -p 6379 get a",
        ),
    ),
    SecretPattern(
        name="piped-password",
        title="Password that a command gets through a pipe (`echo … | sudo -S`)",
        needles=("sudo -", "-stdin", "chpasswd", "| passwd"),
        pattern=(
            rf"\b(?:echo|printf|Write-Output)\b{_BETWEEN_WORDS}(?:-[neE]{{1,3}}{_BETWEEN_WORDS}"
            rf"|%s(?:\\{{1,4}}n)?{_BETWEEN_WORDS})?(?:[A-Za-z0-9_.\-]{{1,40}}:(?=[^|]{{1,200}}\|\s{{0,3}}"
            r"(?:sudo )?chpasswd))?(?P<secret>[^\s\"'\\|;]{3,200})[\"'\\n]{0,6}\s{0,3}\|\s{0,3}"
            r"(?:sudo\b[^|;&]{0,40}?\s-[A-Za-z]{0,4}S|[a-z]{2,20}\b[^|;&]{0,200}-stdin"
            r"|(?:sudo )?(?:chpasswd|passwd)\b)"
        ),
        check="not_a_placeholder",
        fires=("echo <12> | sudo -S id", "echo '<12>' | docker login -u jo --password-stdin"),
        silent=("echo done | sudo tee /etc/x", "echo $PASS | sudo -S id"),
    ),
    SecretPattern(
        name="option-password",
        title="Password in a short option of any command that also has a user option",
        needles=("-u ", '-u"', "-u\\", "--user"),
        pattern=(
            r"(?<![A-Za-z0-9\-])(?:-[uU]|--user(?:name)?)(?:=|" + _BETWEEN_WORDS + ")"
            r"[^\s\x00\"'\\,|;]{1,80}" + _COMMAND + r"-(?:p|P|w|pw|pass|password)"
            rf"(?:=|{_BETWEEN_WORDS})?(?P<secret>[^\s\x00\"'\\,;`:/=]{{6,200}})(?![:/=])"
        ),
        check="password_like",
        fires=("cqlsh h -u jo -p <12>", "evil-winrm -i h -u jo -p '<12>'"),
        silent=("docker run -u 1000 -p 8080:80 img", "ssh -u jo -p 2222 h"),
    ),
    SecretPattern(
        name="path-key",
        title="Key in the path of an address, after `/key/`, `/token/`, `/webhook/` or `/bot`",
        needles=("/key", "/token", "/secret", "/apikey", "/api_key", "/webhook", "/bot"),
        pattern=(
            r"(?:/bot(?=[0-9]{6,12}:)|/(?:key|token|secret|api[_-]?key|webhooks?)/)"
            r"(?P<secret>[A-Za-z0-9_:\-]{16,200})"
        ),
        check="key_like",
        fires=("https://h.example/trigger/x/with/key/dQw81kLm02ZpXc7v",),
        silent=("https://h.example/docs/token/authentication-guide", "/bot<token>/getMe"),
    ),
    SecretPattern(
        name="netrc",
        title="Password in a line of a .netrc file",
        source="GNU inetutils, the .netrc file",
        needles=("password",),
        pattern=(
            r"(?:\b|(?<=\\[nrt]))(?:machine[ \t]{1,8}[^\s\"'\\]{1,200}|default)"
            rf"(?:{_BETWEEN_WORDS}(?:login|account)[ \t]{{1,8}}[^\s\"'\\]{{1,100}}){{1,2}}"
            rf"{_BETWEEN_WORDS}password[ \t]{{1,8}}(?P<secret>[^\s\"'\\]{{2,200}})"
        ),
        check="not_a_placeholder",
        fires=("machine h.example login jo password <12>", "default login a\n  password <12>"),
        silent=(
            "the machine asks for a login and a password twice",
            "the default password is long",
        ),
    ),
    SecretPattern(
        name="bearer",
        title="Credentials after an HTTP authorization scheme (RFC 6750)",
        source="RFC 6750",
        needles=("bearer",),
        pattern=r"[Bb](?i:earer)(?:\s|%20|\+){1,4}(?P<secret>" + _B64 + r"{6,})",
        check="token_like",
        fires=("Authorization: Bearer <24>", "curl -H 'authorization: bearer <8>'"),
        silent=("a bearer token is required", "Bearer authentication"),
    ),
    SecretPattern(
        name="basic",
        title="User name and password after the Basic scheme (RFC 7617)",
        source="RFC 7617",
        needles=("basic",),
        pattern=r"[Bb](?i:asic)\s{1,4}(?P<secret>[A-Za-z0-9+/]{8,}={0,2})",
        check="base64_like",
        fires=("Proxy-Authorization: Basic dXNlcjpwYXNzd29yZDEyMw==",),
        silent=("Basic authentication", "basic functionality"),
    ),
    SecretPattern(
        name="private-key",
        title="PEM private key (RFC 7468), whole or cut",
        source="RFC 7468",
        needles=("private key",),
        pattern=(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"(?P<secret>[A-Za-z0-9+/=\s\\:,.()\-]*?)"
            r"(?:-----END |(?![A-Za-z0-9+/=\s\\:,.()\-]))"
        ),
        fires=("-----BEGIN RSA PRIVATE KEY-----\nMII<60>\n-----END RSA PRIVATE KEY-----",),
        silent=("-----BEGIN PUBLIC KEY-----\nMII", "a private key is needed"),
    ),
    SecretPattern(
        name="url-password",
        title="Password inside a URL or connection string (RFC 3986, userinfo)",
        source="RFC 3986 3.2.1",
        needles=("://",),
        pattern=(
            r"://(?!user(?:name)?:pass(?:word)?@)[^\s/?#@:\"'\\<>]{0,100}+"
            r":(?P<secret>[^\s/?#\"'\\<>\[\]{}]{1,200})@(?=[A-Za-z\[_]|[0-9]{1,3}\.)"
        ),
        fires=("postgres://app:<12>@db.local:5432/app", "https://x:<20>@git.local/r.git"),
        silent=(
            "http://localhost:8080/@scope/name",
            "postgresql://username:password@server:port/database",
            "see http://a.example:80 and mail me@b.example",
        ),
    ),
    SecretPattern(
        name="webhook-url",
        title="Webhook URL whose path is the credential",
        needles=("hook",),
        pattern=(
            r"https?://(?:hooks\.zapier\.com/hooks/catch|hooks\.slack\.com/(?:services|workflows|triggers)"
            r"|(?:canary\.|ptb\.)?discord(?:app)?\.com/api(?:/v\d+)?/webhooks"
            r"|[a-z0-9.\-]{1,80}\.webhook\.office\.com/webhookb2)"
            r"/(?P<secret>[A-Za-z0-9/_\-@]{16,})"
        ),
        fires=("https://hooks.slack.com/services/T<8>/B<8>/<24>",),
        silent=("https://hooks.example.com/services/list",),
    ),
    SecretPattern(
        name="telegram-token",
        title="Telegram bot token",
        needles=(":aa",),
        pattern=_BEGIN + r"(?:bot)?(?P<secret>[0-9]{8,10}:AA[A-Za-z0-9_\-]{33})(?![A-Za-z0-9])",
        fires=("https://api.telegram.org/bot1234567890:AA<33>/getMe",),
        silent=("00:AA:11:22:33:44",),
    ),
    SecretPattern(
        name="azure-client-secret",
        title="Client secret of an Azure application",
        needles=("0q~", "1q~", "2q~", "3q~", "4q~", "5q~", "6q~", "7q~", "8q~", "9q~"),
        pattern=(
            r"(?<![A-Za-z0-9_.~\-])(?P<secret>[A-Za-z0-9_.~]{3}[0-9]Q~[A-Za-z0-9_.~\-]{31,34})"
            r"(?![A-Za-z0-9_~\-])"
        ),
        fires=("abc8Q~<34>",),
        silent=("seq~1", "abc8Q~short"),
    ),
    SecretPattern(
        name="terraform-token",
        title="Terraform Cloud or Enterprise token",
        needles=(".atlasv1",),
        pattern=_BEGIN + r"(?P<secret>[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_\-=]{60,70})",
        fires=("<14>.atlasv1.<67>",),
        silent=("x.atlasv1.short",),
    ),
    SecretPattern(
        name="mailchimp-key",
        title="Mailchimp API key, with its data centre",
        needles=("-us",),
        pattern=_BEGIN + r"(?P<secret>[0-9a-f]{32}-us[0-9]{1,2})(?![A-Za-z0-9])",
        fires=("0123456789abcdef0123456789abcdef-us12",),
        silent=("en-us1", "cafe-us2"),
    ),
    SecretPattern(
        name="account-key",
        title="Key or password inside a key=value connection string (Azure, ADO, ODBC)",
        needles=("password", "pwd", "accountkey", "sharedaccesskey"),
        pattern=(
            r"(?i:(?:;|\bserver=[^\"\\]{0,200})\s?(?:accountkey|sharedaccesskey|password|pwd))\s?="
            r"\s?(?P<secret>[^;\s\"'\\]{3,})"
        ),
        fires=("Server=db;Database=x;User Id=sa;Password=<10>;Encrypt=true",),
        silent=("Server=db;Password=;Encrypt=true",),
    ),
    SecretPattern(
        name="emails",
        title="E-mail addresses",
        needles=("@",),
        pattern=r"(?<![A-Za-z0-9.+_\-])(?P<secret>[A-Za-z0-9.+_\-]{1,64}@(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24})",
        on=STRICT,
        fires=("write to jo.doe+x@mail.example.org",),
        silent=("npm i @scope/name@1.2.3",),
    ),
    SecretPattern(
        name="cards",
        title="Payment card numbers that pass the Luhn check",
        needles=("",),
        pattern=(
            r"(?<![0-9A-Za-z.])(?P<secret>[3-6][0-9]{3}[ \-]?[0-9]{4}[ \-]?[0-9]{4}"
            r"[ \-]?[0-9]{1,7})(?![0-9A-Za-z.])"
        ),
        check="luhn",
        source="ISO/IEC 7812-1",
        on=STRICT,
        fires=("paid with 4111 1111 1111 1111",),
        silent=("4111 1111 1111 1112", "1795295508335435282"),
    ),
    SecretPattern(
        name="home-folders",
        title="The user's name in a home folder's path",
        needles=("",),
        pattern=r"(?:/home/|/Users/|(?i:[A-Z]:(?:\\){1,8}Users(?:\\){1,8}))(?P<secret>[^/\\\s\"':<>|\[\]]{1,64})",
        on=STRICT,
        fires=("/home/jo/project", "/Users/jo/x.txt"),
        silent=("/homes/list",),
    ),
    SecretPattern(
        name="long-tokens",
        title="Any random-looking run of 32 or more characters with letters and digits mixed",
        needles=("",),
        pattern=r"(?<![A-Za-z0-9+/_\-])(?P<secret>[A-Za-z0-9+/_\-]{32,}={0,2})(?![A-Za-z0-9])",
        check="random_like",
        on=STRICT,
        fires=("state <48>",),
        silent=("notifications/resources/list_changed", "getCurrentUserInformationFromTheDatabase"),
    ),
)
