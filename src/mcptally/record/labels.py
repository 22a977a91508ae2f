"""What to call a server that nobody named."""

import os
from collections.abc import Sequence
from typing import Final

_LAUNCHERS: Final = frozenset(
    ("bun", "bunx", "deno", "docker", "node", "npx", "pnpm", "python", "python3", "uv", "uvx")
)
_LAUNCHER_WORDS: Final = frozenset(("dlx", "exec", "run", "tool", "x"))


def label(command: Sequence[str]) -> str:
    """The program's name, or that of what a launcher was told to run."""
    # os.path: pathlib would be a twentieth of the recorder's start-up.
    words = [os.path.basename(word.rstrip("/\\")) or word for word in command]  # noqa: PTH119
    chosen = words[0] if words else ""
    if chosen.lower().removesuffix(".exe").removesuffix(".cmd") in _LAUNCHERS:
        rest = [w for w in words[1:] if w not in _LAUNCHER_WORDS and not w.startswith("-")]
        chosen = rest[0] if rest else chosen
    return chosen or "server"
