-- What failed calls cost callers, in calls.
-- Value of: tool_failures, infrastructure, ambiguous, business
-- A refusal counts as a quarter: most are the caller's mistakes, which the tool's owner can make
-- less likely but not prevent.
tool_failures + infrastructure + ambiguous + business / 4
