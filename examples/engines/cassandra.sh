#!/bin/sh
# Apache Cassandra on this machine, as one node or as three that keep three copies.
#
#   sh examples/engines/cassandra.sh DIRECTORY [1|3]     start it, or start it again
#   sh examples/engines/cassandra.sh DIRECTORY get       get its jars, into CASSANDRA_LIB or DIRECTORY/lib
#   sh examples/engines/cassandra.sh DIRECTORY stop
#   sh examples/engines/cassandra.sh DIRECTORY kill N    end node N with 'kill -9'; 'start N' brings it back
#
# Keeps its rows below DIRECTORY, and the processes' numbers in DIRECTORY/pids. Needs Java 17, and Maven to get
# Cassandra, or CASSANDRA_LIB, a directory with its jars. Three nodes need the addresses 127.0.0.2 and 127.0.0.3,
# which Linux has. It is for trying: one machine, 1 GB of memory a node, and nobody is asked for a password.
set -eu
mkdir -p "${1:?a directory for its rows}"
directory=$(cd "$1" && pwd)
lib=${CASSANDRA_LIB:-$directory/lib}
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
touch "$directory/pids"

# The process of a node, unless its number has become another's.
process() {
    number=$(sed -n "s/^$1 //p" "$directory/pids")
    [ -n "$number" ] && ps -ww -o args= -p "$number" | grep -qF "file://$directory/node$1/" && echo "$number"
}
each() { for home in "$directory"/node[123]; do [ ! -e "$home" ] || echo "${home##*/node}"; done; }

end() {
    number=$(process "$2") || { echo "node $2 does not run" >&2; return 0; }
    kill -s "$1" "$number"
    while process "$2" >/dev/null; do sleep 0.2; done
}

configure() {
    # Who has been in the cluster may ask any node that is; who is new must ask the first.
    seeds=127.0.0.1
    [ ! -e "$directory/node$1/joined" ] || seeds=$(each | sed 's/^/127.0.0./' | paste -sd, -)
    mkdir -p "$directory/node$1"
    # 'batch': what is acknowledged is on the disk.
    cat >"$directory/node$1/cassandra.yaml" <<END
cluster_name: trying
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
commitlog_sync: batch
endpoint_snitch: SimpleSnitch
listen_address: 127.0.0.$1
rpc_address: 127.0.0.$1
storage_port: 7000
native_transport_port: 9042
data_file_directories: ["$directory/node$1/data"]
commitlog_directory: "$directory/node$1/commitlog"
saved_caches_directory: "$directory/node$1/saved_caches"
hints_directory: "$directory/node$1/hints"
cdc_raw_directory: "$directory/node$1/cdc_raw"
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{seeds: "$seeds"}]
authenticator: AllowAllAuthenticator
authorizer: AllowAllAuthorizer
storage_compatibility_mode: NONE
sstable: {selected_format: bti}
auto_snapshot: false
memtable_heap_space: 128MiB
memtable_offheap_space: 128MiB
key_cache_size: 16MiB
file_cache_size: 64MiB
networking_cache_size: 32MiB
# Java has just begun, and three nodes share the processors.
read_request_timeout: 10s
range_request_timeout: 10s
write_request_timeout: 10s
cas_contention_timeout: 10s
request_timeout: 10s
END
    cat >"$directory/logback.xml" <<'END'
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
END
}

start() {
    ! process "$1" >/dev/null || return 0
    configure "$1"
    home=$directory/node$1
    set -- "$1" --add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED
    # What Cassandra reaches for inside Java 17, from its own list.
    for inside in java.lang java.lang.module java.lang.reflect java.io java.util jdk.internal.loader \
        jdk.internal.math jdk.internal.module jdk.internal.ref jdk.internal.reflect \
        jdk.internal.util.jar sun.nio.ch; do
        set -- "$@" "--add-opens=java.base/$inside=ALL-UNNAMED"
    done
    for inside in java.base/jdk.internal.misc java.base/java.lang.ref java.sql/java.sql \
        java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry \
        java.rmi/sun.rmi.server jdk.unsupported/sun.misc jdk.attach/sun.tools.attach; do
        set -- "$@" "--add-exports=$inside=ALL-UNNAMED"
    done
    node=$1 && shift
    nohup "$java" -Xms512M -Xmx512M -XX:+UseG1GC -XX:MaxDirectMemorySize=512M \
        -XX:+ExitOnOutOfMemoryError "$@" \
        -Djdk.attach.allowAttachSelf=true -Dio.netty.tryReflectionSetAccessible=true \
        -Djava.net.preferIPv4Stack=true -javaagent:"$(echo "$lib"/jamm-*.jar)" \
        -Dlogback.configurationFile="$directory/logback.xml" \
        -Dcassandra.config="file://$home/cassandra.yaml" -Dcassandra.storagedir="$home" \
        -Dcassandra.jmx.local.port="719$node" -Dcassandra-foreground=yes \
        -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.ring_delay_ms=5000 \
        -cp "$lib/*" org.apache.cassandra.service.CassandraDaemon >"$home/log" 2>&1 </dev/null &
    { sed "/^$node /d" "$directory/pids"; echo "$node $!"; } >"$directory/pids.new"
    mv "$directory/pids.new" "$directory/pids"
    until grep -q 'Starting listening for CQL clients' "$home/log"; do
        kill -0 $! 2>/dev/null || { tail "$home/log" >&2; echo "node $node has ended" >&2; exit 1; }
        sleep 0.2
    done
    touch "$home/joined"
}

# A write to two of three fails until the nodes have seen each other.
meet() {
    for one in $(each); do
        for other in $(each); do
            [ "$one" != "$other" ] && process "$one" >/dev/null && process "$other" >/dev/null || continue
            until grep "127.0.0.$other:7000 is now" "$directory/node$one/log" | tail -n 1 | grep -q 'UP$'; do
                sleep 0.2
            done
        done
    done
}

case ${2:-} in
stop) for node in $(each); do end TERM "$node" & done; wait; exit ;;
kill) end KILL "${3:?the number of a node}"; exit ;;
start) nodes=${3:?the number of a node} ;;
3) nodes='1 2 3' ;;
1) nodes=1 ;;
get) ;;
'') nodes=$(each) ;;
*) echo "one node, or three" >&2; exit 2 ;;
esac
[ -e "$lib" ] || {
    command -v mvn >/dev/null || { echo "neither CASSANDRA_LIB is given nor Maven installed" >&2; exit 1; }
    cat >"$directory/pom.xml" <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>trying</groupId><artifactId>cassandra</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>5.0.9</version>
  </dependency></dependencies>
</project>
END
    mvn -B -q -f "$directory/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$lib.new"
    mv "$lib.new" "$lib"
}
[ "${2:-}" != get ] || exit 0
for node in ${nodes:-1}; do start "$node"; done
meet
echo "Cassandra answers, and asks nobody for a password, at:"
for node in $(each); do process "$node" >/dev/null && echo "    127.0.0.$node:9042"; done
