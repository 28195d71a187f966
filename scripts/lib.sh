# The common part of scripts/test and scripts/bench-peers: a directory that goes with the script, servers that end with it, and
# programs that are installed where they are missing. It is sourced, with `set -uo pipefail`, from the root of the repository.

# The children that a script must end: processes, and the process group of `logged`.
started=()
running=
# The file that keeps packages from starting services, if this script has made it.
denied=
root=()
if [ "$(id -u)" -ne 0 ]; then root=(sudo -n); fi

# make_work NAME: makes the directory $work, in which all of the script's servers work, and $TMPDIR in it. Both are removed at
# the end of the script, also when it is interrupted, and the servers end with it.
make_work() {
    work=$(mktemp -d "${TMPDIR:-/tmp}/$1.XXXXXX") || exit 1
    # PostgreSQL refuses to be run by root, so its own user must get in as well.
    mkdir "$work/tmp" && chmod 711 "$work" && chmod 1777 "$work/tmp"
    export TMPDIR="$work/tmp"
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# leftovers: the processes that work in our directory. Every server and worker of a test does.
leftovers() {
    find /proc/[0-9]*/cwd -maxdepth 0 -lname "$work/*" 2>/dev/null | cut -d / -f 3
}

clean_up() {
    trap '' INT TERM
    local pid left
    if [ -n "$running" ]; then kill -TERM -- "-$running" 2>/dev/null; wait "$running" 2>/dev/null; fi
    for pid in "${started[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    # PostgreSQL gives its shared memory back on SIGQUIT, and could not on SIGKILL.
    for pid in $(leftovers); do kill -QUIT "$pid" 2>/dev/null; kill -CONT "$pid" 2>/dev/null; done
    for _ in {1..40}; do
        left=$(leftovers)
        [ -z "$left" ] && break
        sleep 0.05
    done
    for pid in $left; do kill -KILL "$pid" 2>/dev/null; done
    [ -n "$denied" ] && "${root[@]}" rm -f "$denied"
    wait 2>/dev/null
    rm -rf "$work"
}

say() { printf '\n== %s\n' "$*"; }

may_install() {
    command -v apt-get >/dev/null || return 1
    [ "${#root[@]}" -eq 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# Packages of servers start them as services, unless this file forbids it. A machine that has one has its reasons.
start_no_services() {
    local policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] && return
    printf '#!/bin/sh\nexit 101\n' >"$work/policy-rc.d"
    "${root[@]}" install -m 755 "$work/policy-rc.d" "$policy" && denied=$policy
}

# apt PACKAGE...: what is in the lists that the machine has, or else in fresh ones.
apt() {
    local get=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get)
    "${get[@]}" install -y --no-install-recommends "$@" >"$work/apt.log" 2>&1 ||
        { "${get[@]}" update >>"$work/apt.log" 2>&1 &&
            "${get[@]}" install -y --no-install-recommends "$@" >>"$work/apt.log" 2>&1; } ||
        { tail -n 20 "$work/apt.log" >&2; return 1; }
}

# postgres_bin: the directory of PostgreSQL's programs, of the newest version there is.
postgres_bin() {
    local directory
    for directory in "${CONVOKE_TEST_POSTGRES_BIN:-}" "$(dirname "$(command -v postgres || echo /)")" \
        $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -Vr); do
        if [ -x "$directory/initdb" ] && [ -x "$directory/postgres" ]; then printf '%s\n' "$directory"; return; fi
    done
    return 1
}

# has WHAT: whether it is here, be it a command, PostgreSQL, or Node.js, whose package is not named like its command.
has() {
    case $1 in
    postgresql) postgres_bin >/dev/null ;;
    nodejs) command -v node >/dev/null ;;
    chromium) [ -x "${CONVOKE_TEST_CHROMIUM:-}" ] || command -v chromium >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

# venv NAME PACKAGE==VERSION...: prints the directory of a Python environment with these packages. It stays in the build
# directory, as what cargo fetches does.
venv() {
    local home="${CARGO_TARGET_DIR:-target}/$1"
    shift
    [[ $home = /* ]] || home="$PWD/$home"
    if ! [ -x "$home/bin/python" ] || [ "$(cat "$home/packages" 2>/dev/null)" != "$*" ]; then
        say "installing $* into $home" >&2
        # An environment that is there but cannot be made again from this Python is as good as none.
        python3 -m venv --clear "$home" >"$work/venv.log" 2>&1 ||
            { may_install && apt python3-venv && python3 -m venv --clear "$home" >"$work/venv.log" 2>&1; } ||
            { cat "$work/venv.log" >&2; return 1; }
        "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >"$work/venv.log" 2>&1 ||
            { cat "$work/venv.log" >&2; return 1; }
        printf '%s\n' "$*" >"$home/packages"
    fi
    printf '%s\n' "$home"
}

# npm_packages NAME PACKAGE@VERSION...: prints the directory that has these packages of npm. It stays in the build directory.
npm_packages() {
    local home="${CARGO_TARGET_DIR:-target}/$1"
    shift
    [[ $home = /* ]] || home="$PWD/$home"
    if [ "$(cat "$home/packages" 2>/dev/null)" != "$*" ]; then
        say "installing $* into $home" >&2
        mkdir -p "$home" &&
            npm install --prefix "$home" --ignore-scripts --no-audit --no-fund --loglevel=error "$@" >"$work/npm.log" 2>&1 ||
            { cat "$work/npm.log" >&2; return 1; }
        printf '%s\n' "$*" >"$home/packages"
    fi
    printf '%s\n' "$home"
}

# logged LOG COMMAND...: runs it, shows and keeps its output; sets $code. In the background and a process group of its
# own, so that a signal is heeded at once and reaches all of it.
logged() {
    local log=$1
    shift
    set -m
    { "$@" 2>&1 | tee "$log"; } &
    running=$!
    set +m
    wait "$running"
    code=$?
    running=
}

# start_redis [FLAG...]: starts a Redis of its own on a free port; sets $redis to its process and $redis_url.
start_redis() {
    local port
    for _ in {1..10}; do
        port=$((20000 + RANDOM % 20000))
        # That one before was ready must not be read as this one's.
        : >"$work/redis.log"
        redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$work/tmp" "$@" >"$work/redis.log" 2>&1 &
        redis=$!
        started+=("$redis")
        # One whose port is taken ends by itself.
        while kill -0 "$redis" 2>/dev/null; do
            if grep -q 'Ready to accept connections' "$work/redis.log"; then redis_url="redis://127.0.0.1:$port"; return; fi
            sleep 0.05
        done
    done
    return 1
}
