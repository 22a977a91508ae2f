-- Whose fault a failed call is, by its verdict.
-- Value of: judged
CASE judged
    WHEN 'tool_failure' THEN 'tool'
    WHEN 'infrastructure' THEN 'network or upstream'
    WHEN 'business' THEN 'caller'
    ELSE 'unknown'
END
