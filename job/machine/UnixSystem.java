package com.sun.security.auth.module;

/**
 * The user of the process, for Java's UnixLoginModule, where the machine has no name for its id.
 *
 * <p>It stands in for Java's own class of this name, whose user has no name then: Hadoop, which Flink's plugin for S3
 * contains, fails at that. The name is the one of the property user.name.
 */
public class UnixSystem {
    public String getUsername() {
        return System.getProperty("user.name");
    }

    public long getUid() {
        return Long.getLong("freshet.uid", -1L).longValue();
    }

    public long getGid() {
        return Long.getLong("freshet.gid", -1L).longValue();
    }

    public long[] getGroups() {
        return new long[0];
    }
}
