-- What failed calls cost callers, in calls.
-- Value of: tool_failures, infrastructure, ambiguous, business
-- A refusal counts a quarter: most are mistakes of the caller, which the owner of a tool can make
-- less likely but cannot remove.
tool_failures + infrastructure + ambiguous + business / 4
