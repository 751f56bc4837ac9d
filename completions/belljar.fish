# fish completion for belljar. tests/completions holds it against `belljar --help`.

function __belljar_needs_command
    not __fish_seen_subcommand_from run explain policy selftest doctor test convert bwrap
end

function __belljar_in
    __fish_seen_subcommand_from $argv; and not contains -- -- (commandline -opc)
end

function __belljar_policies
    printf '%s\t%s\n' builtin:dev@1 "a developer's command" builtin:agent@1 "an agent that nobody has read" \
        builtin:strict@1 "computing only" builtin:shell@1 "a shell session" \
        builtin:validator@1 "a check without a network" builtin:install@1 "a package manager" \
        builtin:bwrap@1 "what bwrap starts from"
    __fish_complete_suffix .json
    __fish_complete_suffix .jsonc
end

complete -c belljar -n __belljar_needs_command -f
complete -c belljar -n __belljar_needs_command -a run -d "Run a command in a sandbox"
complete -c belljar -n __belljar_needs_command -a explain -d "Show what run would do, step by step, and why"
complete -c belljar -n __belljar_needs_command -a policy -d "Write, check, show and compare policies"
complete -c belljar -n __belljar_needs_command -a selftest -d "Try whether the sandbox holds on this host"
complete -c belljar -n __belljar_needs_command -a doctor -d "Say what this host lacks for a policy, and the remedy"
complete -c belljar -n __belljar_needs_command -a test -d "Try what a policy says must hold, for CI"
complete -c belljar -n __belljar_needs_command -a convert -d "Turn arguments of bwrap into a policy, or back"
complete -c belljar -n __belljar_needs_command -a bwrap -d "Take arguments of bwrap"
complete -c belljar -n __belljar_needs_command -l selftest -d "The same as belljar selftest"
complete -c belljar -n __belljar_needs_command -l version -d "Print the version and exit"
complete -c belljar -s h -l help -d "Print the help and exit"

complete -c belljar -n "__belljar_in run explain" -s p -l policy -x -a "(__belljar_policies)" -d "A policy file, or builtin:NAME"
complete -c belljar -n "__belljar_in run explain" -s v -l volume -r -d "Show the host's SRC at DST[:ro]"
complete -c belljar -n "__belljar_in run explain" -s e -l env -x -a "(set -xn)" -d "Set a variable, or pass the caller's"
complete -c belljar -n "__belljar_in run explain" -s w -l workdir -x -a "(__fish_complete_directories)" -d "Start in this directory"
complete -c belljar -n "__belljar_in run explain" -l workspace -x -a "(__fish_complete_directories)" -d "The writable directory"
complete -c belljar -n "__belljar_in run explain" -l network -x -a "none private shared" -d "Which network"
complete -c belljar -n "__belljar_in run explain" -l timeout -x -a "500ms 30s 15m 2h" -d "End the sandbox after this time"
complete -c belljar -n "__belljar_in run explain" -l set -x -d "Set any value of the policy: PATH=VALUE"
complete -c belljar -n "__belljar_in run explain policy" -l var -x -d "Give a variable its value: NAME=VALUE"
complete -c belljar -n "__belljar_in policy" -f -a "init check show diff schema (__belljar_policies)"
complete -c belljar -n "__belljar_in policy" -l set -x -d "Set any value of the policy: PATH=VALUE"
complete -c belljar -n "__belljar_in policy" -l ceiling -x -a "(__belljar_policies)" -d "A policy that none may exceed"
complete -c belljar -n "__belljar_in policy" -l origin -d "With the line that set each value"
complete -c belljar -n "__belljar_in policy" -l json -d "On one line, as it is digested"
complete -c belljar -n "__belljar_in selftest doctor test" -s p -l policy -x -a "(__belljar_policies)" -d "A policy file, or builtin:NAME"
complete -c belljar -n "__belljar_in selftest doctor test" -l json -d "One JSON object"
complete -c belljar -n "__belljar_in selftest" -l uid -x -d "Test as this uid"
complete -c belljar -n "__belljar_in selftest" -l network -d "Test a session's private network, and nothing else"
complete -c belljar -n "__belljar_in selftest" -s v -l verbose -d "Say what was tried"
complete -c belljar -n "__belljar_in doctor" -l fix-script -d "Print the remedies as a script"
complete -c belljar -n "__belljar_in test" -l workspace -x -a "(__fish_complete_directories)" -d "The writable directory"
complete -c belljar -n "__belljar_in test" -l set -x -d "Set any value of the policy: PATH=VALUE"
complete -c belljar -n "__belljar_in test" -l var -x -d "Give a variable its value: NAME=VALUE"
complete -c belljar -n "__belljar_in selftest doctor" -l config -r -d "The settings file"
complete -c belljar -n "__belljar_in selftest doctor" -l listen -x -d "Where requests come in"
complete -c belljar -n "__belljar_in selftest doctor" -l host -x -d "A name that requests may be sent to"
complete -c belljar -n "__belljar_in selftest doctor" -l token-file -r -d "Clients' tokens"
complete -c belljar -n "__belljar_in selftest doctor" -l sessions-root -r -d "Where workspaces are"
complete -c belljar -n "__belljar_in selftest doctor" -l workspace-root -r -d "Where callers' directories are"
complete -c belljar -n "__belljar_in selftest doctor" -l uid-base -x -d "The first uid of the pool"
complete -c belljar -n "__belljar_in selftest doctor" -l max-sessions -x -d "How many sessions"
complete -c belljar -n "__belljar_in selftest doctor" -l user -x -d "Whom the daemon becomes"
complete -c belljar -n "__belljar_in selftest doctor" -l policy-dir -r -d "Where policies are"
complete -c belljar -n "__belljar_in selftest doctor" -l session-policy -x -d "The policy of sessions"
complete -c belljar -n "__belljar_in selftest doctor" -l inline-ceiling -x -d "Within which clients may send policies"
complete -c belljar -n "__belljar_in selftest doctor" -l simulator -d "Read AGENT_SIMULATOR_*"
complete -c belljar -n "__belljar_in selftest doctor" -l session-network -x -a "auto private none shared" -d "Network of the session policy"
complete -c belljar -n "__belljar_in selftest doctor" -l sandbox -x -a "auto off" -d "auto or off"
complete -c belljar -n "__belljar_in selftest doctor" -l port-base -x -d "The first port"
complete -c belljar -n "__belljar_in selftest doctor" -l session-ttl -x -d "How old a session may become"
complete -c belljar -n "__belljar_in selftest doctor" -l max-ttl -x -d "How old one may become whose client asks for it"
complete -c belljar -n "__belljar_in selftest doctor" -l max-runs -x -d "How many of the sessions may be runs"
complete -c belljar -n "__belljar_in selftest doctor" -l sessions-of-a-client -x -d "How many sessions one client may have"
complete -c belljar -n "__belljar_in selftest doctor" -l starts-a-minute -x -d "How much one client may start in a minute"
complete -c belljar -n "__belljar_in selftest doctor" -l retention -x -d "How long an ended session can be asked"
complete -c belljar -n "__belljar_in selftest doctor" -l agent-command -x -d "What the agent simulator runs in each session"
complete -c belljar -n "__belljar_in selftest doctor" -l term-grace -x -d "Between asking a session to end and ending it"
complete -c belljar -n "__belljar_in selftest doctor" -l drain-timeout -x -d "How long sessions may go on when the daemon is to end"
complete -c belljar -n "__belljar_in selftest doctor" -l log -x -a "text json" -d "How each line of the log is written"
complete -c belljar -n "__belljar_in selftest doctor" -l audit -r -d "A file that gets a line for each creation, end and refusal"
complete -c belljar -n "__belljar_in selftest doctor" -l rlimit-as -x -d "Address space"
complete -c belljar -n "__belljar_in selftest doctor" -l rlimit-cpu -x -d "Processor time"
complete -c belljar -n "__belljar_in selftest doctor" -l rlimit-fsize -x -d "Size of a file"
complete -c belljar -n "__belljar_in selftest doctor" -l rlimit-nproc -x -d "Processes of a uid"
complete -c belljar -n "__belljar_in selftest doctor" -l rlimit-nofile -x -d "Open files"
complete -c belljar -n "__belljar_in explain" -l can -x -a "read:/ write:/ exec:/ connect:" -d "Ask what the command could do"
complete -c belljar -n "__belljar_in run" -l record -r -d "Write the record here at the end"
complete -c belljar -n "__belljar_in run" -l status-fd -x -d "Write started, stopped and record as JSON lines here"
complete -c belljar -n "__fish_seen_subcommand_from run explain; and contains -- -- (commandline -opc)" -x -a "(__fish_complete_subcommand --fcs-skip=3)"
complete -c belljar -n "__belljar_in explain" -l exposure -d "List what the command could reach"
complete -c belljar -n "__belljar_in explain" -l json -d "Print the exposure as JSON"
complete -c belljar -n "__belljar_in run" -l explain-denials -d "Say at the end what was refused, and why"
complete -c belljar -n "__belljar_in convert" -l from -x -a bwrap -d "What the arguments are"
complete -c belljar -n "__belljar_in convert" -l to -x -a bwrap -d "What the policy becomes"
