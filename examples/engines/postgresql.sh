#!/bin/sh
# A PostgreSQL on this machine, to keep an index in.
#
#   sh examples/engines/postgresql.sh DIRECTORY [PORT]
#
# Keeps its rows below DIRECTORY. Needs PostgreSQL's server, and openssl for connections in TLS. It is for trying:
# one process that listens on 127.0.0.1 only, and a password that everybody knows. PostgreSQL never runs as root, so
# for root it runs as 'postgres' or 'nobody', who must be able to reach DIRECTORY.
set -eu
mkdir -p "${1:?a directory for its rows}"
directory=$(cd "$1" && pwd)
port=${2:-5432}
# Debian keeps the programs away from PATH, for each version; the newest is the last.
for programs in /usr/lib/postgresql/?/bin /usr/lib/postgresql/??/bin; do
    [ ! -x "$programs/postgres" ] || newest=$programs
done
PATH=$PATH${newest:+:$newest}
command -v initdb >/dev/null && command -v postgres >/dev/null ||
    { echo "PostgreSQL's server is not installed" >&2; exit 1; }
set --
mkdir -p "$directory/server"
if [ "$(id -u)" -eq 0 ]; then
    user=postgres
    id "$user" >/dev/null 2>&1 || user=nobody
    set -- setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups
    chmod a+x "$directory"
    chown "$user" "$directory/server"
    "$@" test -w "$directory/server" || { echo "'$user' cannot reach $directory" >&2; exit 1; }
fi
cd "$directory/server"
if [ ! -e data ]; then
    # What an interrupted start has left is begun anew.
    rm -rf new password
    echo trying-only | "$@" tee password >/dev/null
    "$@" initdb --pgdata new --username onefold --auth scram-sha-256 --pwfile password \
        --encoding UTF8 --no-locale >/dev/null
    echo 'CREATE DATABASE onefold' | "$@" postgres --single -D new -c log_checkpoints=off postgres >/dev/null
    rm password
    mv new data
fi
if [ ! -e "$directory/certificate" ] && command -v openssl >/dev/null; then
    cat >"$directory/certificate.request" <<'END'
[req]
prompt = no
distinguished_name = name
x509_extensions = extensions
[name]
commonName = localhost
[extensions]
basicConstraints = critical, CA:FALSE
subjectAltName = DNS:localhost, IP:127.0.0.1
END
    "$@" openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -config "$directory/certificate.request" \
        -keyout key -out certificate 2>/dev/null
    chmod 600 key
    cp certificate "$directory/certificate"
fi
address=postgres://onefold@127.0.0.1:$port/onefold
cat <<END
in another terminal:
    export PGPASSWORD=trying-only
    psql '$address'
END
if [ -e "$directory/certificate" ]; then
    echo "or, to be sure which server answers:"
    echo "    export PGSSLMODE=verify-full PGSSLROOTCERT='$directory/certificate'"
    set -- "$@" postgres -c ssl=on -c "ssl_cert_file=$PWD/certificate" -c "ssl_key_file=$PWD/key"
else
    set -- "$@" postgres
fi
exec "$@" -D "$PWD/data" -c listen_addresses=127.0.0.1 -c "port=$port" -c unix_socket_directories=
