# shellcheck shell=bash
# Completion in bash for programs on triax, which say themselves what may follow: `PROGRAM complete
# WORDS`. For a program of your own, source this file and call `complete -F _triax NAME`.

_triax() {
  local program=$1 first=1 line
  COMPREPLY=()
  if [ "${program##*/}" = launch.sh ]; then # launch.sh OPTIONS -- PROGRAM WORDS
    while [ "${COMP_WORDS[first]}" != -- ]; do
      [ $((first += 1)) -lt "$COMP_CWORD" ] || { compopt -o default && return; }
    done
    program=${COMP_WORDS[first + 1]}
    first=$((first + 2))
    [ $first -le "$COMP_CWORD" ] || { compopt -o default && return; }
    # Only a program that is known to complete itself is started.
    [[ $(complete -p -- "${program##*/}" 2>/dev/null) == *" -F _triax "* ]] || { compopt -o default && return; }
  fi
  while IFS= read -r line; do
    if [ "$line" = "<files>" ]; then
      compopt -o default
    else
      COMPREPLY+=("${line%%$'\t'*}")
    fi
  done < <("$program" complete "${COMP_WORDS[@]:first:COMP_CWORD + 1 - first}" 2>/dev/null)
}

complete -F _triax minigpt triax-llama triax-resnet launch.sh triax-launch
