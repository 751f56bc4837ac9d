# bash completion for belljar. tests/completions holds it against `belljar --help`.

_belljar_options_explain="-h --help -p --policy -v --volume -e --env -w --workdir --workspace --network
  --timeout --set --var"
_belljar_options_run="$_belljar_options_explain --record --status-fd --explain-denials"
_belljar_options_explain+=" --can --exposure --json"
_belljar_options_daemon="--config --listen --host --token-file --sessions-root --workspace-root --uid-base --max-sessions
  --user --policy-dir --session-policy --inline-ceiling --session-network --simulator --sandbox --port-base --session-ttl --max-ttl
  --max-runs --sessions-of-a-client --starts-a-minute --retention --agent-command
  --term-grace --drain-timeout --log --audit --rlimit-as --rlimit-cpu --rlimit-fsize --rlimit-nproc --rlimit-nofile"
_belljar_options_selftest="-h --help -p --policy --uid --network --json -v --verbose $_belljar_options_daemon"
_belljar_options_doctor="-h --help -p --policy --json --fix-script $_belljar_options_daemon"
_belljar_options_test="-h --help -p --policy --workspace --set --var --json"
_belljar_options_convert="-h --help --from --to"
_belljar_options_policy="init check show diff schema -h --help --ceiling --origin --json --set --var"

# What may stand behind an option; an option of its own takes no value.
_belljar_value() {
  case $1 in
    -p | --policy | --ceiling | --session-policy | --inline-ceiling)
      compgen -W "builtin:dev@1 builtin:agent@1 builtin:strict@1 builtin:shell@1
        builtin:validator@1 builtin:install@1 builtin:bwrap@1" -- "$2"
      compgen -f -X '!*.json' -- "$2"
      compgen -f -X '!*.jsonc' -- "$2"
      compgen -d -- "$2"
      ;;
    -v | --volume | --record) compgen -f -- "$2" ;;
    --config | --token-file | --audit) compgen -f -- "$2" ;;
    --sessions-root | --workspace-root | --policy-dir) compgen -d -- "$2" ;;
    --from | --to) compgen -W "bwrap" -- "$2" ;;
    --sandbox) compgen -W "auto off" -- "$2" ;;
    --session-network) compgen -W "auto private none shared" -- "$2" ;;
    --log) compgen -W "text json" -- "$2" ;;
    -w | --workdir | --workspace) compgen -d -- "$2" ;;
    -e | --env) compgen -e -- "$2" ;;
    --network) compgen -W "none private shared" -- "$2" ;;
    --timeout) compgen -W "500ms 30s 15m 2h" -- "$2" ;;
    --set)
      compgen -W "identity.uid= identity.enforce=prefer limits.rlimits.nofile= limits.wall_time=
        network.mode= syscalls.base=" -- "$2"
      ;;
    --can) compgen -W "read:/ write:/ exec:/ connect:" -- "$2" ;;
    --status-fd | --var | --uid | --uid-base | --max-sessions | --port-base | --listen | --user | \
      --session-ttl | --max-ttl | --max-runs | --sessions-of-a-client | --starts-a-minute | --retention | \
      --host | --agent-command | --term-grace | --drain-timeout | --rlimit-*) ;;
    *) return 1 ;;
  esac
  return 0
}

# Readline breaks words at `:`, `=` and `@` and puts the answer in place of the last piece alone, so
# words are cut out of the line here, and what stands before that piece is taken off the answers.
_belljar() {
  local line=${COMP_LINE:0:COMP_POINT} command="" i
  local -a words
  read -ra words <<<"$line"
  [[ $line != *[[:space:]] ]] || words+=("")
  local current=${words[${#words[@]} - 1]} previous=${words[${#words[@]} - 2]}
  COMPREPLY=()
  for ((i = 1; i < ${#words[@]} - 1; ++i)); do
    if [[ ${words[i]} == -- ]]; then
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(
        if ((i == ${#words[@]} - 2)); then compgen -c -- "$current"; else compgen -f -- "$current"; fi)
      return
    fi
    [[ -n $command || ${words[i]} == -* ]] || command=${words[i]}
  done
  local options=_belljar_options_$command option=$previous
  [[ $current != --*=* ]] || option=${current%%=*}
  case $option in
    -v | --volume | -w | --workdir | --workspace | --record) compopt -o filenames 2>/dev/null ;;
    --set) compopt -o nospace 2>/dev/null ;;
  esac
  if [[ -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W "run explain policy selftest doctor test convert bwrap --selftest --help --version" -- "$current")
  elif [[ $current == --*=* ]]; then
    mapfile -t COMPREPLY < <(_belljar_value "$option" "${current#*=}")
    current=${current#*=}
  elif [[ $command == policy && $current != -* && $previous != policy ]] &&
    ! _belljar_value "$previous" "" >/dev/null; then
    mapfile -t COMPREPLY < <(_belljar_value --policy "$current")
  elif ! _belljar_value "$previous" "" >/dev/null; then
    mapfile -t COMPREPLY < <(compgen -W "${!options-} --" -- "$current")
  else
    mapfile -t COMPREPLY < <(_belljar_value "$previous" "$current")
  fi
  COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*[:=@]}"}"}")
}

complete -F _belljar belljar
