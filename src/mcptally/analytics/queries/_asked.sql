-- Calls of tools that ask for no validation, with hashes of names: cheaper to group by than names.
-- Validations are few, and in few recordings: of other recordings no call is looked up.
WITH named AS NOT MATERIALIZED (
    SELECT *, hash(hash(server), hash(tool)) AS kind, hash(session) AS visit,
        hash(hash(definition), hash(arguments)) AS said
    FROM calls
    WHERE dir = 'c2s' AND method = 'tools/call' AND tool IS NOT NULL
)
SELECT * FROM named ANTI JOIN validations USING (recording)
UNION ALL
SELECT * FROM named
SEMI JOIN validations USING (recording)
ANTI JOIN validations USING (recording, call_id)
