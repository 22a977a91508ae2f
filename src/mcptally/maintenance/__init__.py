"""Commands that change or examine what is there: doctor, merge, forget."""
