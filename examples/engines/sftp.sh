#!/bin/sh
# A server of OpenSSH on this machine, to try stores on other machines with.
#
#   sh examples/engines/sftp.sh DIRECTORY [PORT]
#
# Keeps its keys and its store below DIRECTORY, and lets in whoever has the key there. Needs OpenSSH's
# server and client. It is for trying: it listens on 127.0.0.1 only, and ends with the terminal.
set -eu
mkdir -p "${1:?a directory for its keys and its store}"
directory=$(cd "$1" && pwd)
port=${2:-2222}
sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || { echo "OpenSSH's server is not installed" >&2; exit 1; }
for key in host key; do
    [ -e "$directory/$key" ] || ssh-keygen -q -t ed25519 -N '' -f "$directory/$key"
done
echo "[127.0.0.1]:$port $(cat "$directory/host.pub")" >"$directory/known"
cat >"$directory/config" <<END
Port $port
ListenAddress 127.0.0.1
HostKey $directory/host
PidFile none
AuthorizedKeysFile $directory/key.pub
StrictModes no
PasswordAuthentication no
Subsystem sftp internal-sftp
END
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
cat <<END
in another terminal:
    export ONEFOLD_SFTP_COMMAND='ssh -F none -p $port -i "$directory/key" -oIdentitiesOnly=yes -oUserKnownHostsFile="$directory/known" -s 127.0.0.1 sftp'
    export ONEFOLD_REPOSITORY='sftp://127.0.0.1:$port$directory/store'
    onefold init
END
exec "$sshd" -D -e -f "$directory/config"
