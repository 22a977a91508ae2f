"""Formats a call and the reasons for its verdict, as text and as HTML.

`explain` creates the explanations from a store.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcptally.analytics import contrasts, notebook
from mcptally.plural import count
from mcptally.redaction import display
from mcptally.seeds.inspector.model import FACTORS
from mcptally.tables.outcomes import FAULTS, OUTCOMES, START_FAILURES, UNKNOWN, Verdict, meaning_of
from mcptally.tables.values import claim, whole_certainty
from mcptally.verdict import weighing

SMALLEST_SHOWN: Final = 0.05
"""Smallest contribution to a verdict that is printed; the JSON contains all contributions."""
MATCH_SHOWN: Final = 120
"""Maximum number of characters of a matched text that are printed."""


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A call with all evidence for its verdict."""

    call: dict[str, Any]
    """The call's row in the table `calls`."""
    request: str | None
    """The JSON-RPC frame of the request, as recorded; None if the transcript was not read."""
    reply: str | None
    """The JSON-RPC frame of the reply, as recorded; None if there is no reply, or if the transcript
    was not read."""
    stderr: dict[str, str]
    """Maps `before`, `during` and `after` to lines of the server's stderr: up to 5 from the second
    before the request, up to 40 from during the call, and up to 20 from the second after the reply.
    """
    not_read: str | None
    """Why the transcript was not read; None if it was read."""
    rules: list[dict[str, Any]]
    """The verdict rules that match, in order of precedence, each with the text that it `matched`.
    """
    contributions: list[dict[str, Any]]
    """The evidence for and against the verdict, largest first: `evidence` (a rule, or a feature
    that several rules share), `rules` (their ids) and `weight` (change in the log odds)."""
    probabilities: dict[str, float]
    """Maps verdicts to probabilities (0 to 1). `ambiguous` is included only if it is the verdict.
    The mapping is empty if one rule decides alone. `certainty` is the verdict's probability, or
    `hidden_certainty` if that is lower."""
    text_model: dict[str, float]
    """Maps verdicts to the text model's probabilities, which are pooled with those of the rules.
    The mapping is empty if one rule decides alone."""
    words: list[tuple[str, float]]
    """The terms to which the text model gives the most weight. A weight above 0 supports the
    verdict."""
    hidden_rule: dict[str, Any] | None
    """The rule that decided whether the result contains a hidden error, or None."""
    findings: list[dict[str, Any]]
    attempts: list[dict[str, Any]]
    """All attempts at the same call, including this call."""
    seed: dict[str, Any] | None
    """The call's row of `seed_scores`; None if it was not requested."""
    repetition: dict[str, Any] | None = None
    """Numbers of completed calls to the tool: calls with the same arguments, how many of these
    failed, calls with other arguments, and how many of these worked. None if this call's outcome or
    arguments are unknown."""
    crash: dict[str, Any] | None = None
    """Why the server failed to start (`start_failure`, null if it started), and its `last_words`.
    None unless the server crashed before it answered this call, or failed to start."""
    problem: Mapping[str, Any] | None = None
    """What is claimed about all calls with this cause: a row of `affected_calls` or `priorities`.
    """
    contrast: dict[str, Any] | None = None
    """The row of `contrasts` for the call's group of failures; `explain_calls` does not set it."""

    def __str__(self) -> str:
        """Return the text that `mcptally show` prints, with secrets masked."""
        return display.clean_lines(text(masked(self)).rstrip("\n"))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": str(self), "text/html": _html(masked(self))}


def masked(found: Explanation) -> Explanation:
    """Mask the secrets in an explanation. Do this before text is cut, which may split a secret."""
    return Explanation(**display.mask_value(dataclasses.asdict(found)))


def text(found: Explanation, *, limit: int = 4000) -> str:
    """Format an explanation as text, with payloads and stderr cut to `limit` characters."""
    return "\n".join(_lines(found, limit)) + "\n"


MAX_PAYLOAD: Final = 4000
"""Maximum number of characters of a request or reply that a notebook shows."""


def _html(found: Explanation) -> str:
    """Format an explanation as HTML for notebooks; cut payloads to `MAX_PAYLOAD` characters."""
    call = found.call
    verdict = f", {call['verdict']}" if call["verdict"] else ""
    replied = call["answered_at"] is not None
    payloads = {
        "Request": "\n".join(_block(requested(found), MAX_PAYLOAD)),
        _reply_title(call): "\n".join(_block(replied_with(found), MAX_PAYLOAD) if replied else ()),
        "stderr of the server": "\n".join(_tail(stderr(found), MAX_PAYLOAD)),
        "The transcript was not read": found.not_read or "",
    }
    decided = [*_decision(found), *(_seed(found.seed) if found.seed else ()), *_around(found)]
    return notebook.call(
        _title(call),
        f"{_server(call)}: {call['outcome']}{verdict} ({call['call_id']}, "
        f"{call['file']}:{call['line']})",
        {heading: text for heading, text in payloads.items() if text or (heading == "No reply")},
        "\n".join(decided),
    )


def _lines(found: Explanation, limit: int) -> Iterator[str]:
    call = found.call
    yield _title(call)
    yield f"  call        {call['call_id']}"
    if call["dir"] == "s2c":
        yield "  direction   from the server to the client"
    yield f"  server      {_server(call)}"
    yield f"  client      {call['client'] or '?'} {call['client_version'] or ''}".rstrip()
    revision, source = call["protocol_version"], call["protocol_source"]
    yield f"  protocol    {revision or '?'} ({source or 'unknown'})"
    asked_at = call["requested_at"]
    at = f"{asked_at:%Y-%m-%d %H:%M:%S.%f} UTC" if asked_at else "at an unknown time"
    yield f"  recorded    {at}, {call['file']}:{call['line']}"
    yield ""
    yield f"Request ({count(call['request_bytes'], 'byte')}, id {call['request_id']})"
    yield from _block(requested(found), limit)
    yield ""
    if call["answered_at"] is None:
        yield _reply_title(call)
    else:
        yield f"{_reply_title(call)} ({count(call['response_bytes'], 'byte')})"
        yield from _block(replied_with(found), limit)
    if found.stderr:
        yield ""
        yield "stderr of the server, about this or another call"
        yield from _tail(stderr(found), limit)
    if found.not_read:
        yield ""
        yield f"The transcript was not read: {found.not_read}"
        yield f"  {WITHOUT_TRANSCRIPT}"
    yield ""
    yield from _decision(found)
    if found.seed is not None:
        yield from _seed(found.seed)
    yield from _around(found)


def _title(call: dict[str, Any]) -> str:
    """Return a call's method, and its target (a tool, prompt or resource), quoted if necessary."""
    target = call["tool"] or call["prompt"] or call["resource_uri"] or ""
    shown = target if target == target.strip() else repr(target)
    return f"{call['method']} {shown}".rstrip()


def _reply_title(call: dict[str, Any]) -> str:
    if call["answered_at"] is None:
        return "No reply"
    return "Reply" if call["latency_ms"] is None else f"Reply after {call['latency_ms']:,.1f} ms"


WITHOUT_TRANSCRIPT: Final = (
    "Shown instead of frames: the arguments and the result that the store has. stderr is missing."
)


def requested(found: Explanation) -> str | None:
    """Return the request's frame, or only the arguments if the frame was not read."""
    arguments: str | None = found.call["arguments"]
    return arguments if found.request is None else found.request


def replied_with(found: Explanation) -> str | None:
    """Return the reply's frame, or only its result or error if the frame was not read."""
    response: str | None = found.call["response"]
    return response if found.reply is None else found.reply


_WHEN: Final = {
    "before": "in the second before the request",
    "during": "between request and reply",
    "after": "in the second after the reply",
}


def stderr(found: Explanation) -> str:
    """Return the stderr lines around a call, under headings; empty if there are none."""
    when = (
        _WHEN if found.call["answered_at"] is not None else _WHEN | {"during": "after the request"}
    )
    return "\n".join(f"[{when[name]}]\n{lines}" for name, lines in found.stderr.items())


def evidence(found: Explanation) -> str:
    """Format the evidence about a call: outcome, verdict, rules, schemas, findings, attempts."""
    return "\n".join([*_decision(found), *_around(found)])


def _decision(found: Explanation) -> Iterator[str]:
    """Yield lines about the outcome, the verdict and the schema checks, each with its reason."""
    call = found.call
    yield f"Outcome: {call['outcome']}: {OUTCOMES[call['outcome']]}"
    for name, why in (
        ("cancel_reason", "cancelled with the reason"),
        ("http_status", "HTTP status"),
        ("closed_by", "the HTTP exchange was closed by the"),
    ):
        if call[name] is not None:
            yield f"  {why} {call[name]}"
    if found.hidden_rule:
        rule = found.hidden_rule
        yield f"  whether the result hides an error was decided by {rule['id']}: {rule['title']}"
    yield from _problem(found)
    yield from _verdict(found)
    yield from _shared(found)
    yield ""
    yield "Schemas"
    for side in ("input", "output"):
        state = call[f"{side}_schema_state"]
        detail = call[f"{side}_schema_error"]
        yield f"  {side:<8}{state or 'not validated'}{f': {detail}' if detail else ''}"
    yield f"  definition {call['definition'] or '-'} ({call['definition_source'] or 'none'})"


def problem_of(row: Mapping[str, Any]) -> str:
    """Return what the problem in a row of `affected_calls` claims about all its calls."""
    others = row["affected"] - 1
    failed = f"this and {count(others, 'other call')} failed for the same cause"
    failed = failed if others else "no other call failed for this cause"
    return f"Problem: {failed}; fault: {claim(row)}"


def _problem(found: Explanation) -> Iterator[str]:
    if found.problem is not None:
        yield ""
        yield problem_of(found.problem)
        yield f"  listed by SELECT * FROM affected_calls WHERE cause = '{found.problem['cause']}'"


def _shared(found: Explanation) -> Iterator[str]:
    """Yield lines about other calls to the tool with the same arguments or the same failure."""
    same = found.repetition and contrasts.repetition(found.repetition)
    shared = found.contrast and contrasts.sentence(found.contrast)
    if same or shared:
        yield ""
        yield "Other calls to the tool"
        yield from (f"  {line}" for line in (same, shared) if line)


def _around(found: Explanation) -> Iterator[str]:
    """Yield lines about the findings on a call, and about other attempts at the call."""
    call = found.call
    if found.findings:
        yield ""
        yield "Findings"
        for finding in found.findings:
            yield f"  {finding['severity']:<8}{finding['rule']}: {finding['message']}"
    if len(found.attempts) > 1:
        yield ""
        yield "Attempts of this call"
        for attempt in found.attempts:
            mark = ">" if attempt["call_id"] == call["call_id"] else " "
            took = attempt["latency_ms"]
            spent = f"{took:,.1f} ms" if took is not None else "no reply"
            why = f" ({attempt['attempt_why']})" if attempt["attempt_why"] else ""
            name, outcome = attempt["call_id"], attempt["outcome"]
            yield f" {mark}{attempt['attempt']:>3} {name} {outcome}, {spent}{why}"


def _server(call: dict[str, Any]) -> str:
    """Return the server's label and the name that it reports."""
    label, name = call["server"] or "?", call["server_name"]
    reports = f"reports the name {name} {call['server_version'] or ''}".rstrip()
    return f"{label} ({reports})" if name else label


def _verdict(found: Explanation) -> Iterator[str]:
    call = found.call
    yield ""
    if call["verdict"] is None:
        is_cancelled = call["outcome"] == "cancelled"
        why = "the outcome of the call is unknown" if is_cancelled else "the call did not fail"
        yield f"Verdict: none, because {why}"
        return
    meaning = meaning_of(call["verdict"], call["fault"], _addressee(call))
    yield f"Verdict: {call['verdict']}: {meaning}"
    fault = call["fault"] or UNKNOWN
    whose = f" ({FAULTS[call['fault']]})" if call["fault"] in FAULTS else ""
    if found.crash and (failure := found.crash["start_failure"]):
        # Print the same fault as the finding about the failed start.
        fault, why = START_FAILURES[failure]
        whose = f": the server's start failed ({failure.replace('_', ' ')}: {why})"
    yield f"  reason {call['reason']}, fault: {fault}{whose}"
    if found.crash and found.crash["last_words"]:
        yield f"  last words: {found.crash['last_words']}"
    yield f"  retryable: {call['retryable'] or 'unknown'}"
    if call["certainty"] is not None:
        alone = ", from this call alone" if found.problem else ""
        yield f"  certainty {percent(call['certainty'])} %{alone}: {_meaning_of_certainty(call)}"
    if found.probabilities:
        yield f"  {_listed(found.probabilities)}"
        if call["verdict"] == Verdict.AMBIGUOUS:
            best = max(found.probabilities.items(), key=lambda each: each[1])
            yield from _why_ambiguous(*best)
    elif found.rules:
        yield f"  decided by {found.rules[0]['id']} alone"
    if found.contributions:
        yield f"  evidence for and against the verdict {call['verdict']}, with its weight"
    for each in found.contributions:
        if abs(each["weight"]) >= SMALLEST_SHOWN:
            side = "for" if each["weight"] > 0 else "against"
            yield f"    {abs(each['weight']):>5.2f} {side:<8}{in_words(each, found.rules)}"
    yield from _opinion(found)
    if found.rules:
        yield "  rules that match, in order"
    for rule in found.rules:
        names = " (names the reason)" if rule["id"] == call["rule"] else ""
        yield f"    {rule['id']}{names}: {rule['title']}"
        yield f"        says {rule['verdict']}, {rule['reason']}; source: {rule['source']}"
        if rule["matched"]:
            yield f"        matches {rule['matched'][:MATCH_SHOWN]!r}"


def _opinion(found: Explanation) -> Iterator[str]:
    """Yield lines on the text model's probabilities, and on terms for and against the verdict."""
    if not found.text_model:
        return
    yield f"  the words of the text alone say {_listed(found.text_model)}"
    for side, sign in (("for", 1), ("against", -1)):
        if some := [term for term, weight in found.words if weight * sign > 0]:
            yield f"    {side} {found.call['verdict']}: {', '.join(map(repr, some))}"


def _meaning_of_certainty(call: dict[str, Any]) -> str:
    if call["outcome"] != "hidden_error":
        return "the probability that the verdict is right"
    return (
        "the lower of the probability that the result reports a failure, "
        f"{percent(call['hidden_certainty'])} %, and that of the verdict"
    )


def _addressee(call: dict[str, Any]) -> str:
    """Return who received the request: the client, the server or a tool."""
    if call["dir"] == "s2c":
        return "client"
    return "server" if call["tool"] is None else "tool"


def percent(value: float) -> str:
    """Round a probability as tables and screens do; `<1` replaces 0."""
    return "<1" if value < 1 else f"{whole_certainty(round(value, 1))}"


def _why_ambiguous(best: str, probability: float) -> Iterator[str]:
    if probability < weighing.CONVINCING:
        yield f"  ambiguous, because no probability reaches {weighing.CONVINCING:.0%}"
    elif best != Verdict.AMBIGUOUS:
        yield f"  ambiguous, because no rule that matches says {best}"


def shares(probabilities: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the verdicts with their probabilities in percent, the most probable first."""
    ordered = sorted(probabilities.items(), key=lambda each: -each[1])
    return [(verdict, percent(100 * share)) for verdict, share in ordered]


def _listed(probabilities: Mapping[str, float]) -> str:
    return ", ".join(f"{verdict} {share}%" for verdict, share in shares(probabilities))


def in_words(each: Mapping[str, Any], matching: list[dict[str, Any]]) -> str:
    """Describe one item of evidence for or against a verdict."""
    titles = {rule["id"]: rule["title"] for rule in matching}
    if len(each["rules"]) == 1 and each["evidence"].startswith(each["rules"][0]):
        (name,) = each["rules"]
        return f"{name}: {titles[name]}"
    rules = f": {', '.join(each['rules'])}" if each["rules"] else ""
    return f"{weighing.in_words(each['evidence'])}{rules}"


def _seed(scores: dict[str, Any]) -> Iterator[str]:
    yield ""
    scenario, source = scores["scenario"], scores["scenario_source"]
    yield f"Scenario of the seed: {f'{scenario} (from: {source})' if scenario else 'none'}"
    for prefix, title in (
        ("seed", "by the seed document"),
        ("inspector", "by its original program"),
    ):
        if scores[f"{prefix}_classification"] is None:
            continue
        yield ""
        yield f"Seed score, {title}"
        yield (
            f"  {scores[f'{prefix}_classification']}, confidence "
            f"{scores[f'{prefix}_confidence']:.0f}, valid: {_yes(scores[f'{prefix}_is_valid'])}"
        )
        for kind in ("issues", "evidence"):
            for line in scores[f"{prefix}_{kind}"] or ():
                yield f"    {kind}: {line}"
        decision = scores[f"{prefix}_is_business_error"]
        if decision is None:
            continue
        confidence = scores[f"{prefix}_business_confidence"]
        threshold = scores[f"{prefix}_threshold"]
        points = "" if confidence is None else f" ({confidence:.0%}, needs {threshold or 0:.0%})"
        yield f"  business logic error: {_yes(decision)}{points}"
        for factor in FACTORS:
            yield f"    {factor.replace('_', ' '):<22}{_yes(scores[f'{prefix}_factor_{factor}'])}"


def _yes(value: object) -> str:
    return "not evaluated" if value is None else "yes" if value else "no"


def _block(payload: str | None, limit: int) -> Iterator[str]:
    if payload is None:
        yield "  (none, or not kept)"
        return
    shown = display.indented(payload)
    cut = len(shown) - limit
    for line in shown[:limit].splitlines():
        yield f"  {line}"
    if cut > 0:
        yield f"  … and {count(cut, 'more character')}"


def _tail(text: str, limit: int) -> Iterator[str]:
    """Yield the last lines within `limit` characters; a line takes at most a tenth of that."""
    longest = limit // 10
    lines = [
        line if len(line) <= longest else f"{line[:longest]} … and {len(line) - longest:,} more"
        for line in text.splitlines()
    ]
    totals = itertools.accumulate(len(line) for line in reversed(lines))
    first = len(lines) - sum(total <= limit for total in totals)
    if first:
        yield f"  … {count(first, 'line')}, then:"
    yield from (f"  {line}" for line in lines[first:])
