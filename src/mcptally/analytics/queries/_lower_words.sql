-- The lower-case words of a name or text, each between spaces: ` max length ` for `maxLength`.
-- Value of: words
' ' || lower(regexp_replace(
    regexp_replace(words, '([\p{Ll}\p{N}])(\p{Lu})', '\1 \2', 'g'), '[^\p{L}\p{N}]+', ' ', 'g'
)) || ' '
