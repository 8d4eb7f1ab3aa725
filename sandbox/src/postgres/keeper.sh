# The keeper of one PostgreSQL server: its parent, and the one that stops it and clears up after it.
#
# Commands come on standard input, one word a line; the end of the input means that nobody needs the server any more.
# When the input is a named pipe, it ends when its last writer is gone, and can begin again.
#
#   init     make the data folder if there is none        -> initialised | failed
#   start    start the server                             -> started PID
#   crash    stop it as a power cut would                 -> stopped
#   use      somebody needs the server; nothing to do
#
# Arguments: folder of the programs, data folder, log file, folder to remove at the end, signal that stops the server
# (QUIT when the data goes too), door file (removed first, so that nobody comes in any more; or empty), seconds to linger,
# then -c settings.
bin=$1 data=$2 log=$3 remove=$4 signal=$5 door=$6 linger=$7
shift 7
umask 077
trap '' HUP INT PIPE
server= pause=

init() {
    [ -e "$data/PG_VERSION" ] && echo initialised && return
    if [ "$signal" = QUIT ]; then sync=--no-sync; else sync=; fi # data that is thrown away need not reach the disk
    if "$bin/initdb" -D "$data" -U longhaul --auth=trust --encoding=UTF8 --locale=C $sync </dev/null >>"$log" 2>&1
    then echo initialised; else echo failed; fi
}

# The server's process stays a child of this shell, so its number cannot be given away before we have waited for it.
stop() {
    [ -n "$server" ] || return 0
    kill -"$1" "$server" 2>/dev/null
    (sleep 30; kill -KILL "$server") </dev/null >/dev/null 2>&1 &
    guard=$!
    wait "$server"
    kill -KILL "$guard" 2>/dev/null
    server=
}

finish() {
    trap '' TERM
    [ -n "$door" ] && rm -f "$door"
    [ -n "$pause" ] && kill -KILL "$pause" 2>/dev/null
    stop "$signal"
    rm -rf "$remove"
    exit 0
}
trap finish TERM

# Obeys until the input ends; says in $served whether anything came.
serve() {
    served=
    while read -r word; do
        served=1
        case $word in
            init) init ;;
            start) stop QUIT; "$bin/postgres" -D "$data" "$@" </dev/null >>"$log" 2>&1 & server=$!; echo "started $server" ;;
            crash) stop QUIT; echo stopped ;;
        esac
    done
}

# Lingers in the background, so that a TERM is heard meanwhile.
rest() {
    sleep "$linger" </dev/null >/dev/null 2>&1 &
    pause=$!
    wait "$pause"
    pause=
}

# The last round looks again after the door is shut: who came through it just before is still served.
while serve "$@"; [ -n "$served" ] && [ "$linger" != 0 ]; do rest; done
[ -n "$door" ] && rm -f "$door"
serve "$@"
finish
