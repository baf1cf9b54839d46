#!/bin/sh
# A server of object stores on this machine, to try stores in buckets with.
#
#   sh examples/engines/versitygw.sh DIRECTORY [PORT]
#
# Keeps its objects below DIRECTORY. Needs versitygw, or Go to build it. It is for trying: one process, one
# machine, and a secret that everybody knows.
set -eu
mkdir -p "${1:?a directory for its objects}"
directory=$(cd "$1" && pwd)
port=${2:-7070}
if ! command -v versitygw >/dev/null; then
    command -v go >/dev/null || { echo "versitygw is not installed, and neither is Go" >&2; exit 1; }
    GOBIN=$directory/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
    PATH=$PATH:$directory/bin
fi
mkdir -p "$directory/data/backup" "$directory/side"
cat <<END
in another terminal:
    export AWS_ACCESS_KEY_ID=try AWS_SECRET_ACCESS_KEY=trying-only
    export ONEFOLD_REPOSITORY='s3://backup/first?endpoint=http://127.0.0.1:$port'
    onefold init
END
exec versitygw --quiet --port "127.0.0.1:$port" --access try --secret trying-only \
    posix --sidecar "$directory/side" "$directory/data"
