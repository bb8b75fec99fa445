# SPDX-License-Identifier: Apache-2.0
# bash completion for verbena(1). It takes commands and options from --help, so they match the installed program. It never
# starts an agent: it offers links only while an agent runs. It asks the `verbena` in PATH, whatever path was typed: Tab
# comes before the user has decided to run the program of that path.
#
# Other users can choose names of files, links and network devices. So no word is ever expanded: `compgen -W` would execute
# a $(...) in a name. Readline quotes the offered words (-o filenames).

# _verbena_unquote: sets `plain` to `cur` without its quotes and backslashes.
_verbena_unquote() {
  local rest=$cur quote='' c
  plain=
  while [ -n "$rest" ]; do
    c=${rest:0:1} rest=${rest:1}
    case $quote$c in
      \'\'|'""') quote= ;;
      \'?) plain+=$c ;;
      \"\\) case ${rest:0:1} in ['$`"\']) plain+=${rest:0:1} rest=${rest:1} ;; *) plain+=$c ;; esac ;;
      \"?) plain+=$c ;;
      \\) plain+=${rest:0:1} rest=${rest:1} ;;
      \'|\") quote=$c ;;
      *) plain+=$c ;;
    esac
  done
}

# _verbena_offer: offers the lines of its input that begin with the typed text.
_verbena_offer() {
  local line
  while IFS= read -r line; do
    if [[ $line == ?* && $line == "$plain"* ]]; then COMPREPLY+=("$line"); fi
  done
}

# _verbena_offer_files: offers files. Names may contain any character, even line feeds.
_verbena_offer_files() {
  local home='' start=$plain files file
  case $cur in
    '~/'*) home=$HOME start=$HOME${plain#'~'} ;;
  esac
  mapfile -d '' files < <(shopt -u failglob; printf '%s\0' "$start"*)
  for file in "${files[@]}"; do
    if [[ ! -e $file && ! -L $file ]]; then continue; fi
    COMPREPLY+=("${home:+~}${file#"$home"}")
  done
}

# _verbena_listed HEADING WORD...: prints the entries below a heading in the help of `verbena WORD...`, one per line.
_verbena_listed() {
  local heading=$1
  shift
  verbena "$@" --help 2>/dev/null | awk -v heading="$heading:" '
    $0 == heading {inside = 1; next}
    /^[^ ]/ || /^$/ {inside = 0}
    inside && /^  [^ ]/ {gsub(",", "\n", $1); print $1}'
}

# _verbena_values OPTION WORD...: prints the values of an option, which the help of `verbena WORD...` shows as
# "--by process|qp|link".
_verbena_values() {
  local option=$1
  shift
  verbena "$@" --help 2>/dev/null | awk -v option="$option" '$1 == option && $2 ~ /[|]/ {gsub("[|]", "\n", $2); print $2}'
}

# Prints the names that `verbena explain` knows, with and without their common prefix.
_verbena_names() {
  verbena explain 2>/dev/null | awk '/^ / {name = $1 ~ /^[0-9]+$/ ? $2 : $1; print name; if (sub(/^(IBV_WC|IBV_EVENT|RDMA_CM_EVENT)_/, "", name)) print name}'
  printf '%s\n' wc event cm errno reject nak term
}

_verbena_links() {
  verbena status --json 2>/dev/null | sed -n '/"links"/,/"processes"/s/^      "name": "\(.*\)",$/\1/p'
}

# _verbena_own NAME: succeeds if `verbena NAME` runs one of Verbena's versions of rdma-core's programs.
_verbena_own() {
  [ -n "$1" ] && _verbena_listed Programs | grep -qxF -- "$1"
}

_verbena_own_options() {
  verbena "$1" --help 2>/dev/null | sed -n '/[Oo]ptions.*:$/,/^$/s/^ *\(-.*, \)\{0,1\}\(--[a-zA-Z0-9_-]*\).*/\2/p'
}

_verbena_words() {  # prints the words that may follow the given ones, one per line
  case "$*" in
    'run'*) [[ $cur == -* ]] || compgen -c -- "$cur"; _verbena_listed Options run ;;
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
    'capture'*) _verbena_listed Options capture ;;
    'trace'*) verbena trace --json 2>/dev/null | sed -n 's/^{"pid":\([0-9]*\),.*/\1/p'; _verbena_listed Options trace ;;
    'doctor'*) [[ $cur == -* ]] || compgen -c -- "$cur"; _verbena_listed Options doctor ;;
    'perf') _verbena_listed Tests perf; _verbena_own_options perf ;;
    'explain'*) _verbena_names; _verbena_listed Options explain ;;
    '') _verbena_listed Subcommands; _verbena_listed Programs; _verbena_listed Options ;;
    *) if _verbena_own "$1"; then _verbena_own_options "$1"; else _verbena_listed Subcommands "$@"; _verbena_listed Options "$@"; fi ;;
  esac
}

_verbena() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} plain i
  local before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
  COMPREPLY=()
  if [ "${before[0]}" = run ]; then  # words after the program's name belong to that program
    for ((i = 1; i < ${#before[@]}; ++i)); do
      case ${before[i]} in
        --) declare -F _command_offset >/dev/null && [ $((i + 1)) -lt ${#before[@]} ] && _command_offset $((i + 2)) && return ;;
        -*) ;;
        *) if declare -F _command_offset >/dev/null; then _command_offset $((i + 1)); fi; return ;;
      esac
    done
  fi
  _verbena_unquote
  case $prev in
    --link) _verbena_offer < <(_verbena_links); return ;;
    --serve-only) _verbena_offer < <(compgen -u); return ;;
    --pid) _verbena_offer < <(cd /proc && printf '%s\n' [0-9]*); return ;;
    --by|--sort|--state) _verbena_offer < <(_verbena_values "$prev" "${before[0]}"); return ;;
    --snaplen|--seconds|--count|--qp|--since|--last|--interval|--filter|--listen|--metrics|--program) return ;;
  esac
  case ${before[0]} in
    run|capture|doctor) [[ $cur == -* ]] || _verbena_offer_files ;;
  esac
  _verbena_offer < <(_verbena_words "${before[@]}")
}

complete -o filenames -F _verbena verbena
