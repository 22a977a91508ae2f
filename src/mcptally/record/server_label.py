"""Derives the default label of a server from its command."""

import os
from collections.abc import Iterator, Sequence
from typing import Final

_LAUNCHERS: Final = frozenset(
    (
        *("bun", "bunx", "deno", "node", "npx", "pnpm"),
        *("docker", "podman", "python", "python3", "uv", "uvx"),
    )
)
_SUBCOMMANDS: Final = frozenset(("dlx", "exec", "run", "tool", "x"))

_OPTIONS_WITH_VALUE: Final = {
    "docker": "-a -e -l -m -p -u -v -w -h --add-host --cap-add --cap-drop --cpus --device --dns"
    " --entrypoint --env --env-file --gpus --group-add --hostname --ip --label --log-driver"
    " --memory --mount --name --net --network --platform --publish --pull --restart --runtime"
    " --security-opt --shm-size --tmpfs --ulimit --user --volume --volumes-from --workdir",
    "node": "-C -p -r -w --call --conditions --cwd --env-file --experimental-loader --filter"
    " --config --import --import-map --loader --package --prefix --registry --require --workspace",
    "python": "-W -X",
    "uv": "-i -p --cache-dir --config-file --directory --env-file --extra --extra-index-url"
    " --from --group --index --index-url --project --python --with --with-editable"
    " --with-requirements",
}
"""Launcher options whose value is the next argument. The value may be a secret."""
_OPTIONS_WITH_CODE: Final = {"node": ("-e", "--eval", "--print", "eval"), "python": ("-c",)}
"""Launcher options followed by source code, which must not become the label."""
_SAME_OPTIONS_AS: Final = {"podman": "docker", "python3": "python", "uvx": "uv"}
"""Maps launchers to launchers with the same options. A launcher that is not in this table has the
options of `node`."""


def label(command: Sequence[str]) -> str:
    """Return the program's name; for launchers such as npx, the name of the launched program."""
    program = _name(command[0]) if command else ""
    launcher = program.lower().removesuffix(".exe").removesuffix(".cmd")
    if launcher in _LAUNCHERS:
        program = next(_candidate_names(command[1:], launcher), program)
    return program or "server"


def _name(word: str) -> str:
    # Use os.path: importing pathlib would take 5 % of the recorder's start-up time.
    return os.path.basename(word.rstrip("/\\")) or word  # noqa: PTH119


def _candidate_names(words: Sequence[str], launcher: str) -> Iterator[str]:
    """Yield arguments that may name the program, skipping options, their values and assignments."""
    options_of = _SAME_OPTIONS_AS.get(launcher, launcher)
    options_of = options_of if options_of in _OPTIONS_WITH_VALUE else "node"
    options_with_value = _OPTIONS_WITH_VALUE[options_of].split()
    rest = iter(words)
    for word in rest:
        if word in _OPTIONS_WITH_CODE.get(options_of, ()):
            return
        if word in options_with_value:
            next(rest, None)
        elif not word.startswith("-") and "=" not in word and word not in _SUBCOMMANDS:
            yield _name(word)
