"""Rows for secrets that people and programs write in sentences: passwords, codes, rejected keys.

The same kind of rows as in `secret_patterns`. A word such as "password" is common, so the value
decides as well: it must look like a password, a code or a key (`token_checks`).
"""

from typing import Final

from mcptally.redaction.secret_patterns import SecretPattern

_PASSWORD_WORDS: Final = (
    *("password", "passphrase", "passcode", "passwd", "passwort", "de passe", "palavra-passe"),
    *("kennwort", "contraseña", "contrasena", "clave", "senha", "wachtwoord", "parola", "heslo"),
    *("hasło", "haslo", "lösenord", "losenord", "salasana", "adgangskode", "kodeord", "passord"),
    *("jelszó", "jelszo", "lozinka", "geslo", "slaptažodis", "parole", "kata sandi", "mật khẩu"),
    *("şifre", "sifre", "пароль", "парола", "κωδικός", "סיסמה", "كلمة المرور", "كلمة السر"),
    *("पासवर्ड", "รหัสผ่าน", "密码", "密碼", "口令", "パスワード", "비밀번호", "암호"),
)
"""Words for a password in the languages of most users."""

_CODE_WORDS: Final = (
    *("2fa code", "mfa code", "mfa_code", "2fa_code", "one-time code", "one time code"),
    *("one_time_code", "verification code", "verification_code", "verificationcode"),
    *("security code", "security_code", "confirmation code", "confirmation_code"),
    *("authentication code", "authentication_code", "login code", "login_code"),
    *("sicherheitscode", "bestätigungscode", "código de verificación", "código de seguridad"),
    *("code de vérification", "code de sécurité", "código de verificação", "codice di verifica"),
    *("код подтверждения", "пин-код", "пинкод", "验证码", "驗證碼", "認証コード", "暗証番号"),
    *("確認コード", "인증번호", "인증 코드"),
)
"""Words for a code that is used once, or beside a card."""


def _escaped(text: str, backslashes: int) -> str:
    r"""The text as JSON writes it in ASCII, in lower case; two backslashes for JSON in JSON."""
    mark = "\\" * backslashes
    return "".join(c if c.isascii() else f"{mark}u{ord(c):04x}" for c in text)


def _forms(words: tuple[str, ...], *, cut: bool = True) -> tuple[str, ...]:
    """Each word in UTF-8 and as in ASCII-only JSON.

    Args:
        words: words in lower case.
        cut: whether to leave out a first letter that has a capital: needles are compared in lower
            case, and only ASCII has been converted to it.
    """
    kept = [w[1:] if cut and not w[0].isascii() and w[0].upper() != w[0] else w for w in words]
    return tuple(dict.fromkeys(form for w in kept for form in (w, _escaped(w, 1), _escaped(w, 2))))


_SHORT: Final = {
    **dict.fromkeys(("verification", "confirmation", "authentication"), "ation"),
    "security": "rity",
}
"""Beginnings that needles leave out: many words with the same end need one search."""


def _needles(forms: tuple[str, ...]) -> tuple[str, ...]:
    """For each form, a part that cannot overlap itself, because `TextSearch` requires that."""
    found = []
    for form in forms:
        ascii_start = next((at for at, c in enumerate(form) if not c.isascii() or c == "\\"), 0)
        needle = form[:ascii_start] if ascii_start >= 5 else form
        for beginning, end in _SHORT.items():
            needle = needle.replace(beginning, end)
        while any(needle.endswith(needle[:size]) for size in range(1, len(needle))):
            needle = needle[:-1]
        found.append(needle)
    return tuple(dict.fromkeys(found))


def _one_of(forms: tuple[str, ...]) -> str:
    """A regular expression that matches each form, whatever the case of ASCII letters."""
    longest = sorted(forms, key=len, reverse=True)
    return "(?i:" + "|".join(form.replace("\\", r"\\") for form in longest) + ")"


_COLON: Final = "(?::|\uff1a)"  # also the full-width one of Chinese and Japanese
_QUOTE: Final = r"(?:\\*[\"'`(]|\*{1,2})?"
"""A quote before a value or after a name, perhaps escaped."""

_IS: Final = _one_of(_forms(("é", "è", "är"), cut=False))
_IS_SUFFIX: Final = _one_of(_forms(("是", "为", "為", "は", "が", "는", "은", "이"), cut=False))

_LINK: Final = (
    rf"(?:\s{{0,2}}(?:=|{_COLON}|[-=]>)\s{{0,3}}"
    rf"|\s{{0,2}}{_IS_SUFFIX}\s{{0,2}}{_COLON}?\s{{0,2}}"
    r"|\s{1,3}(?:(?:is|was|will be|now|set|changed|reset|updated|has been|to|as|value|provided"
    rf"|ist|lautet|wurde|auf|es|est|jest|er|on|je|nu|{_IS})(?:\s{{1,3}}|(?=:))){{1,4}}"
    rf"{_COLON}?\s{{0,2}}|\s{{1,3}}(?=[\"'`\\*]))"
)
"""What links a word to its value: a sign, a verb, or nothing if the value is quoted."""

_ABOUT: Final = (
    r"(?:\s{1,3}(?:tempor|provis|inicial|nuov|nuev|nouv)[^\s:=\"']{0,20})?"
    r"(?:\s{1,3}(?:for|of|to|für|pour|para|per|voor|för|dla|для)\s{1,3}[^\s:=\"'\\]{1,60}){0,2}?"
)
"""What may stand between the word and the link: an adjective, or whose password it is."""

_VALUE: Final = (
    r"(?P<secret>(?:(?![\"'`\\,;<>(){}\[\]|*])[!-~]){4,100}?)"
    r"(?=[.,:;!?)*]{0,3}(?:[^!-~]|[\"'`\\<,;)*]|\Z))"
)

_PASSWORDS: Final = _forms(_PASSWORD_WORDS)
_CODES: Final = _forms(_CODE_WORDS)
_FOREIGN: Final = tuple(form for form in _PASSWORDS if "pass" not in form)
_BEFORE: Final = r"(?:(?<![A-Za-z_])|(?<=\\[nrt])|(?<=\\u[0-9A-Fa-f]{4}))"

PROSE_PATTERNS: Final[tuple[SecretPattern, ...]] = (
    SecretPattern(
        name="prose-password",
        title="Password in a sentence, in many languages (`the new password is …`)",
        needles=_needles(_PASSWORDS),
        pattern=rf"{_BEFORE}{_one_of(_PASSWORDS)}\*{{0,2}}{_ABOUT}{_LINK}{_QUOTE}{_VALUE}",
        check="password_like",
        fires=("Your temporary password is Brook-7719.", "Mot de passe : Soleil!4410"),
        silent=("The password is required.", "password is case-sensitive", "Kennwort vergessen?"),
    ),
    SecretPattern(
        name="password-key",
        title="Value under a name that means password in another language",
        needles=_needles(_FOREIGN),
        pattern=(
            rf"{_one_of(_FOREIGN)}"
            r"\\*[\"']\s{0,3}[:=]\s{0,3}\\*[\"'](?P<secret>[^\s\"'\\]{4,200})\\*[\"']"
        ),
        check="not_a_placeholder",
        fires=(
            '{"contraseña": "tigre-dos"}',
            '{"\\u043f\\u0430\\u0440\\u043e\\u043b\\u044c": "leto"}',
        ),
        silent=('{"senha": {"type": "string"}}',),
    ),
    SecretPattern(
        name="one-time-code",
        title="PIN, one-time code or card code after its name",
        needles=(*_needles(_CODES), *(word + end for word in ("pin", "otp") for end in '"\\=: ')),
        pattern=(
            rf"(?:{_one_of(_CODES)}|(?:(?<![A-Za-z])|(?<=\\[nrt]))(?i:pin|t?otp)|(?<=[a-z])(?:Pin|Otp))"
            rf"(?:\s(?:code|number))?(?:{_QUOTE}(?:\s{{0,2}}(?:=|{_COLON})\s{{0,3}}|\s{{1,2}})"
            rf"|\s{{1,3}}(?:is|ist|lautet|est|es|{_IS}){_COLON}?\s{{1,3}}"
            rf"|\s{{0,2}}{_IS_SUFFIX}\s{{0,2}}{_COLON}?)"
            rf"{_QUOTE}(?P<secret>[0-9]{{3}}[ \-]?[0-9]{{3}}|[0-9]{{4,8}}"
            r"|(?=[A-Z]{0,7}[0-9])(?=[0-9]{0,7}[A-Z])[A-Z0-9]{6,8})"
            r"(?![A-Za-z0-9_]|[.:/\-][0-9A-Za-z])"
        ),
        fires=("Your verification code is 482913.", '{"pin": "9041"}', "OTP: 771204"),
        silent=("The PIN is 4 digits long.", "pinned 4821", "spin: 4821", "error code: 500123"),
    ),
    SecretPattern(
        name="rejected-key",
        title="Key or token that an error message repeats",
        needles=("api key", "api-key", "apikey", "api_key", "access key", "secret key", "token",
                 "secret", "license key", "credential"),
        pattern=(
            r"(?i:(?<!unexpected )(?<!invalid )(?P<bare>token|secret|credential)"
            r"|(?:api|access|secret|license|auth)[ _-]?(?:key|token)|(?<=invalid )(?:token|secret))"
            r"(?: (?:provided|supplied|given|used|value|is|was|not|found|invalid|specified)){0,3}"
            r"(?:: ?| ?\(value: ?| ?= ?| )"
            r"\\*(?P<open>[\"'`])?"
            r"(?P<secret>(?(bare)(?(open)|(?<=value: )))[A-Za-z0-9_.~+/=\-]{8,200})"
        ),
        check="key_like",
        fires=("invalid api key 'q8d0aK2mZ71pLs'", "Incorrect API key provided: b71c09aa42d1ff"),
        silent=("Unexpected token 'a1b2c3d4e5'", "API key not found", "secret 'db-pass-1' created"),
    ),
)  # fmt: skip
