# fish completion for belljarctl and belljard. tests/completions holds it against `belljarctl --help`; belljard is
# asked for its options.

set -g __belljarctl_commands ps create rm top run exec logs attach wait kill cp events policies version

function __belljarctl_needs_command
    not __fish_seen_subcommand_from $__belljarctl_commands
end

function __belljarctl_in
    __fish_seen_subcommand_from $argv; and not contains -- -- (commandline -opc)
end

function __belljarctl_sessions
    command belljarctl ps -a -q 2>/dev/null
end

function __belljarctl_policies
    command belljarctl policies 2>/dev/null | awk 'NR > 1 {print $1}'
end

complete -c belljarctl -f
complete -c belljarctl -n __belljarctl_needs_command -a ps -d "List sessions, or the processes of one"
complete -c belljarctl -n __belljarctl_needs_command -a create -d "Make a session, and print its id"
complete -c belljarctl -n __belljarctl_needs_command -a rm -d "End sessions"
complete -c belljarctl -n __belljarctl_needs_command -a top -d "Show what runs in all sessions"
complete -c belljarctl -n __belljarctl_needs_command -a run -d "Run a command of which nothing is kept"
complete -c belljarctl -n __belljarctl_needs_command -a exec -d "Run a command in a session"
complete -c belljarctl -n __belljarctl_needs_command -a logs -d "Print what a process has written"
complete -c belljarctl -n __belljarctl_needs_command -a attach -d "Put this terminal on a process"
complete -c belljarctl -n __belljarctl_needs_command -a wait -d "Wait for the end of a process"
complete -c belljarctl -n __belljarctl_needs_command -a kill -d "End a process, or signal it"
complete -c belljarctl -n __belljarctl_needs_command -a cp -d "Copy files and directories"
complete -c belljarctl -n __belljarctl_needs_command -a events -d "Print what happened to sessions"
complete -c belljarctl -n __belljarctl_needs_command -a policies -d "List the policies"
complete -c belljarctl -n __belljarctl_needs_command -a version -d "Print the versions"
complete -c belljarctl -n __belljarctl_needs_command -l version -d "Print the version and exit"
complete -c belljarctl -s h -l help -d "Print the help and exit"
complete -c belljarctl -l socket -r -F -d "The daemon's unix socket"
complete -c belljarctl -l url -x -d "The daemon at http://HOST:PORT"
complete -c belljarctl -l token-file -r -F -d "The token for it"

complete -c belljarctl -n "__belljarctl_in ps rm exec logs attach wait kill" -a "(__belljarctl_sessions)" -d Session
complete -c belljarctl -n "__belljarctl_in ps create top run exec events policies version" -l json -d "JSON, for scripts"
complete -c belljarctl -n "__belljarctl_in run create" -s p -l policy -x -a "(__belljarctl_policies)" -d "A policy of the daemon's"
complete -c belljarctl -n "__belljarctl_in run create" -l network -x -a "none private shared auto" -d "Which network"
complete -c belljarctl -n "__belljarctl_in run create" -l var -x -d "Give a variable its value"
complete -c belljarctl -n "__belljarctl_in run create" -l limit -x -d "memory=512MiB, rlimits.nofile=64"
complete -c belljarctl -n "__belljarctl_in run create" -l workspace -x -a "(__fish_complete_directories)" -d "Work in a directory of the host"
complete -c belljarctl -n "__belljarctl_in run create" -l chown -d "Hand it over to the session"
complete -c belljarctl -n "__belljarctl_in run create" -l file -r -F -d "Put a file into the workspace first"
complete -c belljarctl -n "__belljarctl_in run create exec" -s e -l env -x -a "(set -xn)" -d "Set a variable, or pass the caller's"
complete -c belljarctl -n "__belljarctl_in run create exec" -s w -l workdir -x -d "Start in this directory"
complete -c belljarctl -n "__belljarctl_in run create exec" -l timeout -x -a "30s 15m 2h" -d "End the command after this time"
complete -c belljarctl -n "__belljarctl_in run create exec" -l output -x -d "End it when it has written more"
complete -c belljarctl -n "__belljarctl_in run create exec" -s i -l interactive -d "Give it standard input"
complete -c belljarctl -n "__belljarctl_in exec" -s t -l tty -d "Give it a terminal"
complete -c belljarctl -n "__belljarctl_in exec" -s d -l detach -d "Print its number, and leave it alone"
complete -c belljarctl -n "__belljarctl_in exec" -l claim -d "Hand over what others have added"
complete -c belljarctl -n "__belljarctl_in exec attach" -l detach-keys -x -a "ctrl-p,ctrl-q none" -d "The keys that leave it alone"
complete -c belljarctl -n "__belljarctl_in attach" -l takeover -d "Take its input from who has it"
complete -c belljarctl -n "__belljarctl_in attach" -l read-only -d "Only show what it writes"
complete -c belljarctl -n "__belljarctl_in attach" -l from-start -d "What it has written before, too"
complete -c belljarctl -n "__belljarctl_in logs events" -s f -l follow -d "Go on with what comes"
complete -c belljarctl -n "__belljarctl_in logs" -l stream -x -a "stdout stderr" -d "Only this one"
complete -c belljarctl -n "__belljarctl_in logs" -l offset -x -d "From this byte of it on"
complete -c belljarctl -n "__belljarctl_in ps create" -s l -l label -x -d "KEY=VALUE"
complete -c belljarctl -n "__belljarctl_in ps" -s a -l all -d "What has ended, too"
complete -c belljarctl -n "__belljarctl_in ps" -s q -l quiet -d "Only the ids"
complete -c belljarctl -n "__belljarctl_in ps" -l state -x -a "starting running stopped ending ended" -d "Those in this state"
complete -c belljarctl -n "__belljarctl_in create" -l ttl -x -a "30m 1h 1d" -d "How old it may become"
complete -c belljarctl -n "__belljarctl_in create" -l idle -x -a "5m 30m" -d "How long nobody may use it"
complete -c belljarctl -n "__belljarctl_in create" -l ready-port -x -d "Wait until something listens there"
complete -c belljarctl -n "__belljarctl_in kill" -s s -l signal -x -a "TERM KILL INT HUP QUIT USR1 USR2" -d "Send this signal"
complete -c belljarctl -n "__belljarctl_in kill" -l target -x -a "leader group tree" -d "Of the signal"
complete -c belljarctl -n "__belljarctl_in cp" -F -a "(__belljarctl_sessions)" -d Session
complete -c belljarctl -n "__belljarctl_in cp" -l tar -d "- is a tar"
complete -c belljarctl -n "__belljarctl_in events" -l after -x -a last -d "Those after this one"
complete -c belljarctl -n "__belljarctl_in events" -l session -x -a "(__belljarctl_sessions)" -d "Of this session"
complete -c belljarctl -n "__belljarctl_in top" -l interval -x -a "2s 10s" -d "How often"
complete -c belljarctl -n "__belljarctl_in top" -l once -d "Once"
complete -c belljarctl -n "__fish_seen_subcommand_from run create exec; and contains -- -- (commandline -opc)" -x -a "(__fish_complete_subcommand --fcs-skip=3)"

complete -c belljard -a "(belljard --help 2>/dev/null | string match -rg '^  (--[a-z-]+)')"
