#!/bin/sh
# A server on this machine that speaks what Azure Blob Storage does, to try stores in containers with.
#
#   sh examples/engines/azurite.sh DIRECTORY [PORT]
#
# Keeps its blobs below DIRECTORY. Needs Azurite, or npm to install it, and curl. It is for trying: one process, one
# machine, and an account and a key that everybody knows.
set -eu
mkdir -p "${1:?a directory for its blobs}"
directory=$(cd "$1" && pwd)
port=${2:-10000}
if ! command -v azurite-blob >/dev/null; then
    command -v npm >/dev/null || { echo "Azurite is not installed, and neither is npm" >&2; exit 1; }
    [ -e "$directory/bin/package.json" ] || {
        mkdir -p "$directory/bin"
        echo '{ "private": true }' >"$directory/bin/package.json"
        npm install --no-audit --no-fund --prefix "$directory/bin" azurite@3.35.0
    }
    PATH=$PATH:$directory/bin/node_modules/.bin
fi
mkdir -p "$directory/data"
account=devstoreaccount1
server=http://127.0.0.1:$port/$account
# What that account's key has signed: a container may be made with it.
sas='sv=2019-12-12&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z&sig=YKAtmJudHaH98kax9IHOYkiCF9veHhGg4TBHNwluLXo%3D'
azurite-blob --silent --disableTelemetry --skipApiVersionCheck --blobHost 127.0.0.1 --blobPort "$port" \
    --location "$directory/data" &
trap 'kill $!' EXIT
trap 'exit 1' HUP INT TERM
# The container stays from one start to the next.
curl --silent --output /dev/null --retry 60 --retry-delay 1 --retry-connrefused --request PUT \
    --header 'x-ms-version: 2023-11-03' --data '' "$server/backup?restype=container&$sas"
cat <<END
in another terminal:
    export AZURE_STORAGE_ACCOUNT_KEY=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
    export ONEFOLD_REPOSITORY='az://backup/first?account=$account&endpoint=$server'
    onefold init
END
wait
