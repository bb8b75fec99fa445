# SPDX-License-Identifier: Apache-2.0
# bash completion for verbena(1). Commands and options come from --help, so that they are those of the program that is
# installed. It starts no agent: links are those of an agent that runs.

# _verbena_listed HEADING WORD...: what the help of `verbena WORD...` lists below a heading.
_verbena_listed() {
  local heading=$1
  shift
  "${COMP_WORDS[0]}" "$@" --help 2>/dev/null | awk -v heading="$heading:" '
    $0 == heading {inside = 1; next}
    /^[^ ]/ || /^$/ {inside = 0}
    inside && /^  [^ ]/ {gsub(",", " ", $1); print $1}'
}

# _verbena_values OPTION WORD...: the values of an option, which the help of `verbena WORD...` shows as "--by process|qp|link".
_verbena_values() {
  local option=$1
  shift
  "${COMP_WORDS[0]}" "$@" --help 2>/dev/null | awk -v option="$option" '$1 == option && $2 ~ /[|]/ {gsub("[|]", " ", $2); print $2}'
}

# Names to explain, whole and without what all names of their kind begin with.
_verbena_names() {
  "${COMP_WORDS[0]}" explain 2>/dev/null | awk '/^ / {name = $1 ~ /^[0-9]+$/ ? $2 : $1; print name; if (sub(/^(IBV_WC|IBV_EVENT|RDMA_CM_EVENT)_/, "", name)) print name}'
  echo wc event cm errno reject nak term
}

_verbena_links() {
  "${COMP_WORDS[0]}" status --json 2>/dev/null | sed -n '/"links"/,/"processes"/s/^      "name": "\(.*\)",$/\1/p'
}

# _verbena_own NAME: whether `verbena NAME` runs one of our own of rdma-core's programs.
_verbena_own() {
  [ -n "$1" ] && _verbena_listed Programs | grep -qxF -- "$1"
}

_verbena_own_options() {
  "${COMP_WORDS[0]}" "$1" --help 2>/dev/null | sed -n '/^Options:$/,/^$/s/^ *\(-.*, \)\{0,1\}\(--[a-zA-Z_-]*\).*/\2/p'
}

_verbena_programs() {
  compgen -c -- "$1"
  compgen -f -- "$1"
}

_verbena_words() {  # what may stand at the end of these words
  case "$*" in
    'run'*) [ "${cur#-}" != "$cur" ] || _verbena_programs "$cur"; _verbena_listed Options run ;;
    'link add '?*' type rxe netdev'|'link add '?*' netdev') ls /sys/class/net ;;
    'link add '?*' type rxe') echo netdev ;;
    'link add '?*' type') echo rxe ;;
    'link add '?*' '?*) ;;
    'link add '?*) ls /sys/class/net; echo type ;;
    'link set '?*' peers'*) echo any ;;
    'link set '?*) echo peers ;;
    'link show'*|'link list'*|'link del'|'link delete'|'link set') _verbena_links; _verbena_listed Options "$1" "$2" ;;
    'help') _verbena_listed Subcommands; _verbena_listed Programs; _verbena_listed Options help ;;
    'help '*) _verbena_listed Subcommands "${@:2}" ;;
    'capture'*) [ "${cur#-}" != "$cur" ] || compgen -f -- "$cur"; _verbena_listed Options capture ;;
    'trace'*) "${COMP_WORDS[0]}" trace --json 2>/dev/null | sed -n 's/^{"pid":\([0-9]*\),.*/\1/p'; _verbena_listed Options trace ;;
    'doctor'*) [ "${cur#-}" != "$cur" ] || _verbena_programs "$cur"; _verbena_listed Options doctor ;;
    'explain'*) _verbena_names; _verbena_listed Options explain ;;
    '') _verbena_listed Subcommands; _verbena_listed Programs; _verbena_listed Options ;;
    *) if _verbena_own "$1"; then _verbena_own_options "$1"; else _verbena_listed Subcommands "$@"; _verbena_listed Options "$@"; fi ;;
  esac
}

_verbena() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i
  local before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
  COMPREPLY=()
  if [ "${before[0]}" = run ]; then  # behind the program's name it is the program's
    for ((i = 1; i < ${#before[@]}; ++i)); do
      case ${before[i]} in
        --) declare -F _command_offset >/dev/null && [ $((i + 1)) -lt ${#before[@]} ] && _command_offset $((i + 2)) && return ;;
        -*) ;;
        *) if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); fi; return ;;
      esac
    done
  fi
  case $prev in
    --link) mapfile -t COMPREPLY < <(compgen -W "$(_verbena_links)" -- "$cur"); return ;;
    --serve-only) mapfile -t COMPREPLY < <(compgen -u -- "$cur"); return ;;
    --pid) mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur"); return ;;
    --by|--sort|--state) mapfile -t COMPREPLY < <(compgen -W "$(_verbena_values "$prev" "${before[0]}")" -- "$cur"); return ;;
    --snaplen|--seconds|--count|--qp|--since|--last|--interval|--filter|--listen|--metrics|--program) return ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$(_verbena_words "${before[@]}")" -- "$cur" | sort -u)
}

complete -o filenames -F _verbena verbena
