# bash completion for belljarctl and belljard. tests/completions holds it against `belljarctl --help`; belljard
# is asked for its options.

_belljarctl_options_top="--help --version --socket --url --token-file"
_belljarctl_options_process="-h --help -e --env -w --workdir --timeout --output -i --interactive --json"
_belljarctl_options_session="-p --policy --network --var --limit --workspace --chown --file"
_belljarctl_options_run="$_belljarctl_options_process $_belljarctl_options_session"
_belljarctl_options_create="$_belljarctl_options_run -l --label --ttl --idle --ready-port"
_belljarctl_options_exec="$_belljarctl_options_process -t --tty -d --detach --claim --detach-keys"
_belljarctl_options_ps="-h --help -a --all --state -l --label -q --quiet --json"
_belljarctl_options_rm="-h --help"
_belljarctl_options_top_command="-h --help --interval --once --json"
_belljarctl_options_logs="-h --help -f --follow --stream --offset"
_belljarctl_options_attach="-h --help --takeover --read-only --from-start --detach-keys"
_belljarctl_options_wait="-h --help"
_belljarctl_options_kill="-h --help -s --signal --target"
_belljarctl_options_cp="-h --help --tar"
_belljarctl_options_events="-h --help -f --follow --after --session --json"
_belljarctl_options_policies="-h --help --json"
_belljarctl_options_version="-h --help --json"

# What the daemon knows, asked the same way as the command line has it.
_belljarctl_ask() {
  command belljarctl "${_belljarctl_where[@]}" "$@" 2>/dev/null
}

# What may stand behind an option; an option of its own takes no value.
_belljarctl_value() {
  case $1 in
    -p | --policy) compgen -W "$(_belljarctl_ask policies | awk 'NR > 1 {print $1}')" -- "$2" ;;
    --socket | --token-file | --file) compgen -f -- "$2" ;;
    --workspace) compgen -d -- "$2" ;;
    -e | --env) compgen -e -- "$2" ;;
    --network) compgen -W "none private shared auto" -- "$2" ;;
    --timeout | --ttl | --idle | --interval) compgen -W "2s 30s 15m 2h" -- "$2" ;;
    --limit) compgen -W "memory= processes= cpus= disk= output= wall_time= rlimits.nofile=" -- "$2" ;;
    --state) compgen -W "starting running stopped ending ended" -- "$2" ;;
    --stream) compgen -W "stdout stderr" -- "$2" ;;
    --target) compgen -W "leader group tree" -- "$2" ;;
    -s | --signal) compgen -W "TERM KILL INT HUP QUIT USR1 USR2 STOP CONT" -- "$2" ;;
    --session) compgen -W "$(_belljarctl_ask ps -q)" -- "$2" ;;
    --after) compgen -W "last" -- "$2" ;;
    --detach-keys) compgen -W "ctrl-p,ctrl-q none" -- "$2" ;;
    --url | --var | --output | -w | --workdir | -l | --label | --ready-port | --offset) ;;
    *) return 1 ;;
  esac
  return 0
}

# Words that stand free: sessions, processes, files.
_belljarctl_word() {
  case $1 in
    exec) (($2 == 0)) && compgen -W "$(_belljarctl_ask ps -q)" -- "$3" ;;
    ps | rm) compgen -W "$(_belljarctl_ask ps -a -q)" -- "$3" ;;
    logs | attach | wait | kill)
      if (($2 == 0)); then
        compgen -W "$(_belljarctl_ask ps -a -q)" -- "$3"
      else
        compgen -W "$(_belljarctl_ask ps -a -q "$4")" -- "$3"
      fi
      ;;
    cp)
      compgen -f -- "$3"
      compgen -S : -W "$(_belljarctl_ask ps -q)" -- "$3"
      ;;
  esac
}

# Readline breaks words at `:`, `=` and `@` and puts the answer in place of the last piece alone, so
# words are cut out of the line here, and what stands before that piece is taken off the answers.
_belljarctl() {
  local line=${COMP_LINE:0:COMP_POINT} command="" first="" free=0 i
  local -a words _belljarctl_where=()
  read -ra words <<<"$line"
  [[ $line != *[[:space:]] ]] || words+=("")
  local current=${words[${#words[@]} - 1]} previous=${words[${#words[@]} - 2]}
  COMPREPLY=()
  for ((i = 1; i < ${#words[@]} - 1; ++i)); do
    case ${words[i]} in
      --)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(
          if ((i == ${#words[@]} - 2)); then compgen -c -- "$current"; else compgen -f -- "$current"; fi)
        return
        ;;
      --socket | --url | --token-file) _belljarctl_where+=("${words[i]}" "${words[++i]}") ;;
      --socket=* | --url=* | --token-file=*) _belljarctl_where+=("${words[i]}") ;;
      -*) ! _belljarctl_value "${words[i]%%=*}" "" >/dev/null 2>&1 || [[ ${words[i]} == *=* ]] || ((++i)) ;;
      *)
        if [[ -z $command ]]; then
          command=${words[i]}
        else
          ((free++ == 0)) && first=${words[i]}
        fi
        ;;
    esac
  done
  local option=$previous options=_belljarctl_options_$command
  [[ $command != top ]] || options=_belljarctl_options_top_command
  [[ $current != --*=* ]] || option=${current%%=*}
  case $option in
    --limit) compopt -o nospace 2>/dev/null ;;
    --file | --workspace | --socket | --token-file) compopt -o filenames 2>/dev/null ;;
  esac
  if [[ $current == --*=* ]]; then
    mapfile -t COMPREPLY < <(_belljarctl_value "$option" "${current#*=}")
    current=${current#*=}
  elif _belljarctl_value "$previous" "" >/dev/null 2>&1; then
    mapfile -t COMPREPLY < <(_belljarctl_value "$previous" "$current")
  elif [[ -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W "ps create rm top run exec logs attach wait kill cp events policies version
      $_belljarctl_options_top" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${!options-} --socket --url --token-file --" -- "$current")
  else
    [[ $command != cp ]] || compopt -o nospace 2>/dev/null
    mapfile -t COMPREPLY < <(_belljarctl_word "$command" "$free" "$current" "$first")
  fi
  COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*[:=@]}"}"}")
}

_belljard() {
  case $3 in
    --config | --token-file | --audit) compopt -o filenames 2>/dev/null && mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    --sessions-root | --workspace-root | --policy-dir)
      compopt -o filenames 2>/dev/null && mapfile -t COMPREPLY < <(compgen -d -- "$2")
      ;;
    --sandbox) mapfile -t COMPREPLY < <(compgen -W "auto off" -- "$2") ;;
    --log) mapfile -t COMPREPLY < <(compgen -W "text json" -- "$2") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$("$1" --help 2>/dev/null | grep -oE '^  -\S+' | tr ',' ' ')" -- "$2") ;;
  esac
}

complete -F _belljarctl belljarctl
complete -F _belljard belljard
