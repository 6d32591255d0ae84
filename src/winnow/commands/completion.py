"""`winnow completion`: a script with which a shell completes commands and options."""

from __future__ import annotations

from typing import Annotated, Literal

import tyro

BASH = r"""_winnow() {
    local cur=${COMP_WORDS[COMP_CWORD]} first=${COMP_WORDS[1]} second=${COMP_WORDS[2]} commands group options
    commands=$(winnow --help | sed -nE 's/^  ([a-z]+( [a-z]+)?)  .*/\1/p')
    group=$(awk -v first="$first" '$1 == first { print $2 }' <<<"$commands")
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "$(cut -d ' ' -f 1 <<<"$commands" | sort -u)" -- "$cur"))
    elif ((COMP_CWORD == 2)) && [[ $group ]]; then
        COMPREPLY=($(compgen -W "$group" -- "$cur"))
    elif [[ $cur == -* ]]; then
        [[ $group ]] || second=
        options=_winnow_${first//[^a-z]/_}_${second//[^a-z]/_}  # asked for once in a shell
        [[ ${!options} ]] || printf -v "$options" %s \
            "$(winnow "$first" $second --help 2>/dev/null | grep -oE -- '--[a-z][a-z.-]*' | sort -u)"
        COMPREPLY=($(compgen -W "${!options}" -- "$cur"))
    fi
}
complete -o default -F _winnow winnow"""


def completion(shell: Annotated[Literal["bash"], tyro.conf.Positional]) -> None:
    """Print a script with which a shell completes commands and options: source <(winnow completion bash).

    Options are those that the command's --help shows; anything else completes to a file.

    Args:
        shell: The shell it is for.
    """
    print(BASH)
