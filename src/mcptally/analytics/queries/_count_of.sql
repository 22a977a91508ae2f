-- A number with its noun: 1 call, 2 calls.
-- Value of: number, noun
format('{:,} {}', number::BIGINT, noun || if(number = 1, '', 's'))
