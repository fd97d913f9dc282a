#!/bin/bash
# The entry point of the image, called as Flink's official one is: `jobmanager`, `standalone-job` and `taskmanager` start a
# process of Flink; any other command is started as it stands (`freshet run …`, `bash -c kubernetes-jobmanager.sh …`).
# FLINK_PROPERTIES (lines of `key: value`) and JOB_MANAGER_RPC_ADDRESS go into Flink's configuration.
set -e

# What a job writes is its owner's alone, whichever process writes it (freshet/files/owner_only.py does so in Python).
umask 077

options=()
if [ -n "$JOB_MANAGER_RPC_ADDRESS" ]; then
    options+=("-Djobmanager.rpc.address=$JOB_MANAGER_RPC_ADDRESS")
fi
while IFS= read -r line; do
    case "$line" in
        *:*) key="${line%%:*}" value="${line#*:}"
             options+=("-D${key//[[:space:]]/}=${value#"${value%%[![:space:]]*}"}") ;;
    esac
done <<< "$FLINK_PROPERTIES"
if [ "${#options[@]}" -gt 0 ]; then
    "$FLINK_HOME/bin/config-parser-utils.sh" "$FLINK_CONF_DIR" "$FLINK_HOME/bin" "$FLINK_LIB_DIR" "${options[@]}"
fi

# An id without a name, as OpenShift gives: Hadoop, in the plugin for S3, asks Java for the name.
if ! id -un > /dev/null 2>&1; then
    patch=$(python -c "import os
from freshet.job.machine import java, nameless
print(nameless.java_options(java.find_java_home(), java.flink_home(), os.environ))")
    export JDK_JAVA_OPTIONS="${JDK_JAVA_OPTIONS:+$JDK_JAVA_OPTIONS }$patch"
fi

case "$1" in
    jobmanager | standalone-job | taskmanager)
        exec "$FLINK_HOME/bin/$1.sh" start-foreground "${@:2}" ;;
    *)
        exec "$@" ;;
esac
