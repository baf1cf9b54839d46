#!/bin/sh
# Ceph on this machine with its server of objects, which keeps one copy on one disk or three copies on three.
#
#   sh examples/engines/ceph.sh DIRECTORY [1|3]     start it with so many disks (OSDs), or start it again
#   sh examples/engines/ceph.sh DIRECTORY stop
#   sh examples/engines/ceph.sh DIRECTORY kill N    end disk N (0, 1, 2) with 'kill -9'; 'start N' brings it back
#
# Keeps its objects below DIRECTORY, and the processes' numbers in DIRECTORY/pids. N may be 'rgw' as well, which is
# the server of objects. Needs root, curl, and Ceph, or Debian to install it from. It is for trying: one machine, 1 GB
# of memory, disks that are files, no authentication inside, and a secret that everybody knows.
set -eu
mkdir -p "${1:?a directory for its objects}"
directory=$(cd "$1" && pwd)
conf=$directory/ceph.conf
server=http://127.0.0.1:8600
touch "$directory/pids"

# The process of a daemon, unless its number has become another's.
process() {
    number=$(sed -n "s/^$1 //p" "$directory/pids")
    [ -n "$number" ] && ps -ww -o args= -p "$number" | grep -qF -- "-c $conf " && echo "$number"
}
disks() { for disk in "$directory"/osd[012]; do [ ! -e "$disk" ] || echo "${disk##*/osd}"; done; }
named() { case $1 in [0-9]*) echo "osd$1" ;; *) echo "$1" ;; esac; }

end() {
    number=$(process "$2") || { echo "$2 does not run" >&2; return 0; }
    kill -s "$1" "$number"
    while process "$2" >/dev/null; do sleep 0.2; done
}

# daemon NAME PROGRAM ARGUMENT...: starts it, unless it runs.
daemon() {
    name=$1 program=$2
    ! process "$name" >/dev/null || return 0
    shift 2
    nohup "$program" -f -c "$conf" "$@" >>"$directory/log/$name.out" 2>&1 </dev/null &
    { sed "/^$name /d" "$directory/pids"; echo "$name $!"; } >"$directory/pids.new"
    mv "$directory/pids.new" "$directory/pids"
}

# The first start: who is in it, and where each keeps what it knows.
lay_out() {
    copies=$1
    cluster=$(cat /proc/sys/kernel/random/uuid)
    monitor='[v2:127.0.0.1:3300,v1:127.0.0.1:6789]'
    rm -rf "$directory"/mon "$directory"/osd?
    mkdir -p "$directory/log" "$directory/run" "$directory/mon" "$directory/mgr" "$directory/rgw"
    cat >"$conf.new" <<END
[global]
fsid = $cluster
mon_host = $monitor
public_addr = 127.0.0.1
public_network = 127.0.0.0/8
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
keyring = $directory/keyring
run_dir = $directory/run
admin_socket =
log_file = $directory/log/\$name.log
osd_pool_default_size = $copies
osd_pool_default_min_size = $(((copies + 1) / 2))
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
bluestore_block_size = 10737418240
bluestore_cache_autotune = false
bluestore_cache_size = 134217728
[mon]
mon_data = $directory/mon
[mgr]
mgr_data = $directory/mgr
mgr_initial_modules =
[osd]
osd_data = $directory/osd\$id
[client]
# Without this radosgw waits for ever for a monitor that knows who it is.
ms_mon_client_mode = crc
[client.rgw]
rgw_data = $directory/rgw
rgw_frontends = beast endpoint=${server#http://}
END
    ceph-authtool -C "$directory/keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
    ceph-authtool "$directory/keyring" --gen-key -n client.admin --cap mon 'allow *' >/dev/null
    monmaptool --create --clobber --fsid "$cluster" --addv a "$monitor" "$directory/monmap" >/dev/null
    ceph-mon -c "$conf.new" --mkfs -i a --monmap "$directory/monmap" --keyring "$directory/keyring"
    disk=0
    while [ "$disk" -lt "$copies" ]; do
        mkdir "$directory/osd$disk"
        disk=$((disk + 1))
    done
    mv "$conf.new" "$conf"
}

start_disk() {
    if [ ! -e "$directory/osd$1/made" ]; then
        rm -rf "$directory/osd$1" && mkdir "$directory/osd$1"
        uuid=$(cat /proc/sys/kernel/random/uuid)
        ceph -c "$conf" osd purge-new "$1" --yes-i-really-mean-it >/dev/null 2>&1 || true
        ceph -c "$conf" osd new "$uuid" "$1" >/dev/null
        ceph-osd -c "$conf" -i "$1" --mkfs --osd-uuid "$uuid" 2>>"$directory/log/osd$1.out"
        ceph -c "$conf" osd crush add "osd.$1" 1.0 root=default host=here 2>/dev/null
        touch "$directory/osd$1/made"
    fi
    daemon "osd$1" ceph-osd -i "$1"
    until ceph -c "$conf" osd dump | grep -q "^osd.$1 up"; do
        process "osd$1" >/dev/null || { echo "disk $1 has ended: $directory/log" >&2; exit 1; }
        sleep 0.5
    done
}

start_server() {
    daemon rgw radosgw -n client.rgw
    until curl -s -o /dev/null "$server"; do
        process rgw >/dev/null || { echo "the server has ended: $directory/log" >&2; exit 1; }
        sleep 0.5
    done
}

case ${2:-} in
stop)
    end TERM rgw
    for disk in $(disks); do end TERM "osd$disk"; done
    end TERM mgr
    end TERM mon
    exit ;;
kill) end KILL "$(named "${3:?the number of a disk}")"; exit ;;
start)
    if [ "${3:?the number of a disk}" = rgw ]; then start_server; else start_disk "$3"; fi
    exit ;;
'' | 1 | 3) ;;
*) echo "one disk, or three" >&2; exit 2 ;;
esac
command -v radosgw >/dev/null && command -v ceph-osd >/dev/null || {
    apt-get install -y --no-install-recommends ceph-mon ceph-osd ceph-mgr radosgw ceph-common ceph-base
}
[ -e "$conf" ] || lay_out "${2:-1}"
daemon mon ceph-mon -i a
# Of two directories that are started at once, the second must leave the first's disks alone.
cluster=$(sed -n 's/^fsid = //p' "$conf")
[ "$(ceph -c "$conf" --connect-timeout 60 fsid)" = "$cluster" ] || { echo "another Ceph answers" >&2; exit 1; }
daemon mgr ceph-mgr -i x
for disk in $(disks); do start_disk "$disk"; done
start_server
export AWS_ACCESS_KEY_ID=try AWS_SECRET_ACCESS_KEY=trying-only
radosgw-admin -c "$conf" user info --uid try >/dev/null 2>&1 ||
    radosgw-admin -c "$conf" user create --uid try --display-name try \
        --access-key "$AWS_ACCESS_KEY_ID" --secret "$AWS_SECRET_ACCESS_KEY" >/dev/null
# The bucket stays from one start to the next, and so this may say that it is there.
curl -sSf -o /dev/null -X PUT --aws-sigv4 aws:amz:us-east-1:s3 -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
    --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" "$server/backup"
cat <<END
Ceph runs until 'stop'. Now:
    export AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY
    export ONEFOLD_REPOSITORY='s3://backup/first?endpoint=$server'
    onefold init
END
