"""Commands of Dragoman as text to copy into a shell."""

import shlex


def command_line(*words: object) -> str:
    """A command, quoted for a shell whatever its words contain."""
    return shlex.join(["dragoman", *map(str, words)])
