#!/bin/sh
# Garage on this machine, one node or three that keep three copies, to try stores in buckets with.
#
#   sh examples/engines/garage.sh DIRECTORY [1|3]    start it with so many nodes, or start it again
#   sh examples/engines/garage.sh DIRECTORY stop
#   sh examples/engines/garage.sh DIRECTORY kill N   end node N (1, 2, 3) with 'kill -9'; 'start N' brings it back
#
# Keeps its objects below DIRECTORY, and the processes' numbers in DIRECTORY/pids. Needs garage, or Rust to build it
# (ten minutes), and openssl. Garage replaces objects whatever is asked, so a database has to decide beside it
# (cassandra.sh, postgresql.sh). It is for trying: one machine, and a secret that everybody knows.
set -eu
mkdir -p "${1:?a directory for its objects}"
directory=$(cd "$1" && pwd)
touch "$directory/pids"
PATH=$PATH:$directory/tools/bin
access=GK0123456789abcdef01234567
secret=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef

have_garage() {
    ! command -v garage >/dev/null || return 0
    command -v cargo >/dev/null || { echo "garage is not installed, and neither is Rust" >&2; exit 1; }
    cargo install garage --version 2.5.0 --locked --root "$directory/tools"
}

of_node() { number=$1 && shift && garage -c "$directory/node$number.toml" "$@"; }
nodes() { for node in 1 2 3; do [ ! -e "$directory/node$node.toml" ] || echo "$node"; done; }

# The process of a node, unless its number has become another's.
process() {
    number=$(sed -n "s/^$1 //p" "$directory/pids")
    [ -n "$number" ] && ps -ww -o args= -p "$number" | grep -qF -- "-c $directory/node$1.toml" && echo "$number"
}

end() {
    number=$(process "$2") || { echo "node $2 does not run" >&2; return 0; }
    kill -s "$1" "$number"
    while process "$2" >/dev/null; do sleep 0.2; done
}

start() {
    ! process "$1" >/dev/null || return 0
    RUST_LOG=garage=warn nohup garage -c "$directory/node$1.toml" server >>"$directory/node$1.log" 2>&1 </dev/null &
    { sed "/^$1 /d" "$directory/pids"; echo "$1 $!"; } >"$directory/pids.new"
    mv "$directory/pids.new" "$directory/pids"
    until of_node "$1" status >/dev/null 2>&1; do
        process "$1" >/dev/null || { echo "node $1 has ended: $directory/node$1.log" >&2; exit 1; }
        sleep 0.3
    done
}

write_configurations() {
    between=$(openssl rand -hex 32)
    for node in $(seq 1 "$1"); do
        mkdir -p "$directory/node$node"
        cat >"$directory/node$node.toml" <<END
metadata_dir = "$directory/node$node/metadata"
data_dir = "$directory/node$node/data"
db_engine = "lmdb"
replication_factor = $1
block_size = "4M"
rpc_bind_addr = "127.0.0.$node:3901"
rpc_public_addr = "127.0.0.$node:3901"
rpc_secret = "$between"
[s3_api]
s3_region = "garage"
api_bind_addr = "127.0.0.$node:3900"
[admin]
api_bind_addr = "127.0.0.$node:3903"
admin_token = "trying-only"
END
    done
}

# The first start: who keeps what, a key, a bucket.
lay_out() {
    for node in $(nodes); do
        name=$(of_node "$node" node id -q)
        [ "$node" = 1 ] || of_node 1 node connect "$name" >/dev/null
        of_node 1 layout assign -z "zone$node" -c 10G "${name%%@*}" >/dev/null
    done
    of_node 1 layout apply --version 1 >/dev/null
    of_node 1 key import --yes -n trying "$access" "$secret" >/dev/null
    of_node 1 bucket create backup >/dev/null
    of_node 1 bucket allow --read --write --owner backup --key trying >/dev/null
    touch "$directory/laid-out"
}

case ${2:-1} in
    stop) for node in $(nodes); do end TERM "$node"; done ;;
    kill) end KILL "${3:?which node}" ;;
    start) have_garage && start "${3:?which node}" ;;
    1 | 3)
        have_garage
        [ -e "$directory/node1.toml" ] || write_configurations "${2:-1}"
        for node in $(nodes); do start "$node"; done
        [ -e "$directory/laid-out" ] || lay_out
        cat <<END
Garage answers. Beside a database, say that of postgresql.sh:
    export AWS_ACCESS_KEY_ID=$access AWS_SECRET_ACCESS_KEY=$secret
    export ONEFOLD_REPOSITORY='s3://backup/first?endpoint=http://127.0.0.1:3900&region=garage&database=postgres://onefold@127.0.0.1/onefold'
    onefold init
END
        ;;
    *) echo "usage: garage.sh DIRECTORY [1|3|stop|kill N|start N]" >&2; exit 2 ;;
esac
