import java.io.File;
import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceEvent;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.connector.kafka.source.split.KafkaPartitionSplit;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.kafka.shaded.org.apache.kafka.clients.admin.AdminClient;
import org.apache.flink.kafka.shaded.org.apache.kafka.clients.admin.TopicDescription;
import org.apache.flink.kafka.shaded.org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.flink.kafka.shaded.org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.flink.kafka.shaded.org.apache.kafka.common.TopicPartition;
import org.apache.flink.kafka.shaded.org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.flink.runtime.execution.SuppressRestartsException;
import org.apache.flink.util.SerializedThrowable;

/**
 * Flink's source of a Kafka topic, with what it lacks: its messages come in pieces (MessagePieces.java); a bounded one
 * ends after a restore too (FLINK-31006), and where the topic ended at the resume; one whose offsets are gone, or whose
 * topic was made again, ends the job.
 *
 * <p>A failure that comes again with every restart is not worth one, and a topic that grows until an old offset fits
 * would be read from the middle.
 *
 * <p>The partitions of a topic have several readers, which end together: of a source of which some subtasks have ended,
 * a state no longer has the partitions that these had read.
 *
 * <p>A source that has ended in a state never reads again. So one whose job is to go on later does not end: it says by
 * its last watermark that all was read, and waits to be stopped with a savepoint.
 *
 * <p>The state is Flink's own. Of a bounded topic it also has the partitions that were read to their end, as splits
 * without a message, so that a resume knows where they go on.
 *
 * <p>This file is compiled where the job is drawn, by the compiler that Flink has for generated code, which knows no
 * generics and no lambdas, and travels in a jar with the job.
 */
public class WatchedSource implements Source {

    private static final long LOOK_MS = 2000;
    private static final int LOOKS_WITHOUT_TOPIC = 3; // brokers that have just started may not know it yet

    private final Source source;
    private final Properties properties;
    private final String topic;
    private final String topicId;
    private final String clusterId;
    private final Map ends;
    private final String ended;
    private final boolean waits;
    private final String advice;
    private final Object tokenUrl;
    private final int pieceBytes;
    private final int pieceMessages;
    private final boolean keyed;

    /**
     * `source` is one of MessagePieces. `ends`: by partition the offset behind the last message, null: unbounded. Ids
     * may be null, and go unwatched.
     * `ended`: the file that says that all was read. It is there before Flink knows of it: a source that has ended in a
     * state never reads again, whatever its ends are then. `waits`: the source waits to be stopped at the ends.
     * `tokenUrl`: null, or a TokenUrl, which does its work when it arrives where the topic is read. The others are those
     * of MessagePieces.Gathered.
     */
    public WatchedSource(
            Source source, Properties properties, String topic, String topicId, String clusterId, Map ends,
            String ended, boolean waits, String advice, Object tokenUrl, int pieceBytes, int pieceMessages,
            boolean keyed) {
        this.source = source;
        this.properties = properties;
        this.topic = topic;
        this.topicId = topicId;
        this.clusterId = clusterId;
        this.ends = ends == null ? null : new HashMap(ends);
        this.ended = ended;
        this.waits = waits;
        this.advice = advice;
        this.tokenUrl = tokenUrl;
        this.pieceBytes = pieceBytes;
        this.pieceMessages = pieceMessages;
        this.keyed = keyed;
    }

    public Boundedness getBoundedness() {
        return source.getBoundedness();
    }

    public SimpleVersionedSerializer getSplitSerializer() {
        return source.getSplitSerializer();
    }

    public SimpleVersionedSerializer getEnumeratorCheckpointSerializer() {
        return source.getEnumeratorCheckpointSerializer();
    }

    public SourceReader createReader(SourceReaderContext context) throws Exception {
        File folder = new File(ended).getParentFile();
        if (ends != null && !folder.isDirectory()) {
            throw new SuppressRestartsException(new SerializedThrowable(new IllegalStateException(
                    "--until: the end of a bounded topic is noted in " + folder + ", which this process does not see; "
                            + "share --out with all processes, or leave --until out")));
        }
        return new Reader(source.createReader(context), context);
    }

    public SplitEnumerator createEnumerator(SplitEnumeratorContext context) throws Exception {
        Enumerator made = new Enumerator(context);
        made.inner = source.createEnumerator(made.watched());
        return made;
    }

    public SplitEnumerator restoreEnumerator(SplitEnumeratorContext context, Object state) throws Exception {
        Enumerator made = new Enumerator(context);
        made.inner = source.restoreEnumerator(made.watched(), state);
        return made;
    }

    /** A failure after which Flink does not restart; no exception of ours has a class that a client knows. */
    private SuppressRestartsException last(String message) {
        return new SuppressRestartsException(
                new SerializedThrowable(new IllegalStateException(message + "; " + advice)));
    }

    private AdminClient admin() {
        Properties own = new Properties();
        own.putAll(properties);
        own.setProperty("client.id", properties.getProperty("client.id.prefix", "freshet") + "-watch");
        return AdminClient.create(own);
    }

    /** Why the topic is not the one that the job read; null where it is. */
    private String whyOther(AdminClient admin) throws Exception {
        String cluster = (String) admin.describeCluster().clusterId().get(LOOK_MS, TimeUnit.MILLISECONDS);
        if (clusterId != null && cluster != null && !cluster.equals(clusterId)) {
            return "the brokers are another cluster now (got " + cluster + ", expected " + clusterId + ")";
        }
        Map told = (Map) admin.describeTopics(Collections.singleton(topic)).allTopicNames().get(
                LOOK_MS, TimeUnit.MILLISECONDS);
        String id = ((TopicDescription) told.get(topic)).topicId().toString();
        if (topicId != null && !id.equals(topicId)) {
            return "the topic " + topic + " was deleted and recreated (its id is " + id + ", expected " + topicId + ")";
        }
        return null;
    }

    /** To the enumerator: a reader has read all its partitions to their ends. To a reader: all readers have. */
    private static class ReadToTheEnd implements SourceEvent {

        private static final long serialVersionUID = 1L;
    }

    /** Reads the splits up to the ends of this run. */
    private class Reader implements SourceReader {

        private final SourceReader inner;
        private final SourceReaderContext context;
        private final Map known = new HashMap(); // by split id
        private final CompletableFuture allHaveRead = new CompletableFuture();
        private final MessagePieces.Gathered gathered =
                new MessagePieces.Gathered(pieceBytes, pieceMessages, keyed);
        private boolean hasRead = false;

        Reader(SourceReader inner, SourceReaderContext context) {
            this.inner = inner;
            this.context = context;
        }

        public void addSplits(List splits) {
            List moved = new ArrayList();
            for (Iterator each = splits.iterator(); each.hasNext();) {
                KafkaPartitionSplit split = moved((KafkaPartitionSplit) each.next());
                known.put(split.splitId(), split);
                moved.add(split);
            }
            inner.addSplits(moved);
        }

        /** A partition that was made after the ends were asked for is not read. */
        private KafkaPartitionSplit moved(KafkaPartitionSplit split) {
            if (ends == null) {
                return split;
            }
            TopicPartition place = split.getTopicPartition();
            long start = split.getStartingOffset();
            Number end = (Number) ends.get(Integer.valueOf(place.partition()));
            return end == null
                    ? new KafkaPartitionSplit(place, Math.max(start, 0L), Math.max(start, 0L))
                    : new KafkaPartitionSplit(place, start, Math.max(end.longValue(), Math.max(start, 0L)));
        }

        public List snapshotState(long checkpoint) {
            List splits = inner.snapshotState(checkpoint);
            if (ends == null) {
                return splits;
            }
            Map finished = new HashMap(known);
            for (Iterator each = splits.iterator(); each.hasNext();) {
                finished.remove(((KafkaPartitionSplit) each.next()).splitId());
            }
            List all = new ArrayList(splits);
            for (Iterator each = finished.values().iterator(); each.hasNext();) {
                KafkaPartitionSplit split = (KafkaPartitionSplit) each.next();
                long end = ((Long) split.getStoppingOffset().get()).longValue();
                all.add(new KafkaPartitionSplit(split.getTopicPartition(), end, end));
            }
            return all;
        }

        public InputStatus pollNext(ReaderOutput output) throws Exception {
            try {
                if (!hasRead) {
                    InputStatus status = pollMany(output);
                    if (status != InputStatus.END_OF_INPUT) {
                        return status;
                    }
                    hasRead = true;
                    if (waits) {
                        output.emitWatermark(Watermark.MAX_WATERMARK);
                    } else {
                        context.sendSourceEventToCoordinator(new ReadToTheEnd());
                    }
                }
                if (!allHaveRead.isDone()) {
                    return InputStatus.NOTHING_AVAILABLE;
                }
                new File(ended).createNewFile();
                return InputStatus.END_OF_INPUT;
            } catch (Exception error) {
                for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                    if (cause instanceof InvalidOffsetException) {
                        throw last(whyGone((InvalidOffsetException) cause));
                    }
                }
                throw error;
            }
        }

        /** Sends what is there as one piece. Its messages and their offsets are both before a barrier, or both after. */
        private InputStatus pollMany(ReaderOutput output) throws Exception {
            InputStatus status = inner.pollNext(gathered);
            while (status == InputStatus.MORE_AVAILABLE && !gathered.isFull()) {
                status = inner.pollNext(gathered);
            }
            gathered.send(output);
            return status;
        }

        private String whyGone(InvalidOffsetException error) {
            AdminClient admin = admin();
            try {
                String why = whyOther(admin);
                if (why != null) {
                    return why;
                }
            } catch (Exception unknown) {
                // no broker says more than the error does
            } finally {
                admin.close(Duration.ofMillis(LOOK_MS));
            }
            return error instanceof OffsetOutOfRangeException
                    ? "the topic " + topic + " does not have the messages that come next, by partition and offset "
                            + ((OffsetOutOfRangeException) error).offsetOutOfRangePartitions()
                    : error.getMessage();
        }

        public void start() {
            inner.start();
        }

        public CompletableFuture isAvailable() {
            return hasRead ? allHaveRead : inner.isAvailable();
        }

        public void notifyNoMoreSplits() {
            inner.notifyNoMoreSplits();
        }

        public void handleSourceEvents(SourceEvent event) {
            if (event instanceof ReadToTheEnd) {
                allHaveRead.complete(null);
            } else {
                inner.handleSourceEvents(event);
            }
        }

        public void pauseOrResumeSplits(Collection toPause, Collection toResume) {
            inner.pauseOrResumeSplits(toPause, toResume);
        }

        public void notifyCheckpointComplete(long checkpoint) throws Exception {
            inner.notifyCheckpointComplete(checkpoint);
        }

        public void notifyCheckpointAborted(long checkpoint) throws Exception {
            inner.notifyCheckpointAborted(checkpoint);
        }

        public void close() throws Exception {
            inner.close();
        }
    }

    /** Assigns partitions, looks at the topic, and says when a reader has all of its own, and when all have read them. */
    private class Enumerator implements SplitEnumerator {

        private final SplitEnumeratorContext context;
        SplitEnumerator inner;
        private AdminClient admin;
        private int looksWithoutTopic = 0;
        private int calls = 0;
        private final Set haveRead = new HashSet(); // readers, by subtask
        private boolean hasAll = false; // the first look at the partitions found none that is not assigned

        Enumerator(SplitEnumeratorContext context) {
            this.context = context;
        }

        /** The context for Flink's enumerator. Where its look at the partitions leads to nothing more, it stays silent. */
        SplitEnumeratorContext watched() {
            InvocationHandler handler = new InvocationHandler() {
                public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
                    if (method.getName().equals("callAsync")) {
                        calls++;
                        if (given.length == 2 && calls == 1) {
                            given = new Object[] {given[0], firstLook((BiConsumer) given[1])};
                        }
                    }
                    try {
                        return method.invoke(context, given);
                    } catch (InvocationTargetException error) {
                        throw error.getCause();
                    }
                }
            };
            return (SplitEnumeratorContext) Proxy.newProxyInstance(
                    SplitEnumeratorContext.class.getClassLoader(), new Class[] {SplitEnumeratorContext.class}, handler);
        }

        private BiConsumer firstLook(final BiConsumer handler) {
            return new BiConsumer() {
                public void accept(Object found, Object error) {
                    handler.accept(found, error);
                    if (calls == 1 && source.getBoundedness() == Boundedness.BOUNDED) {
                        hasAll = true;
                        for (Iterator each = context.registeredReaders().keySet().iterator(); each.hasNext();) {
                            context.signalNoMoreSplits(((Integer) each.next()).intValue());
                        }
                    }
                }
            };
        }

        public void start() {
            if (topicId != null || clusterId != null) {
                admin = admin();
                context.callAsync(new Callable() {
                    public Object call() {
                        return look();
                    }
                }, new BiConsumer() {
                    public void accept(Object found, Object error) {
                        judge((String) found);
                    }
                }, 0, LOOK_MS);
            }
            inner.start();
        }

        /** What is wrong with the topic; null where nothing is, or no broker says. */
        private String look() {
            try {
                String problem = whyOther(admin);
                looksWithoutTopic = 0;
                return problem;
            } catch (ExecutionException error) {
                if (error.getCause() instanceof UnknownTopicOrPartitionException
                        && ++looksWithoutTopic >= LOOKS_WITHOUT_TOPIC) {
                    return "the topic " + topic + " was deleted";
                }
            } catch (Exception error) {
                return null; // the reader waits for brokers that are away, and so does this
            }
            return null;
        }

        private void judge(String problem) {
            if (problem != null) {
                throw last(problem);
            }
        }

        public void addReader(int subtask) {
            haveRead.remove(Integer.valueOf(subtask));
            inner.addReader(subtask);
            signal(subtask);
        }

        public void addSplitsBack(List splits, int subtask) {
            haveRead.remove(Integer.valueOf(subtask)); // it begins again
            inner.addSplitsBack(splits, subtask);
            if (context.registeredReaders().containsKey(Integer.valueOf(subtask))) {
                signal(subtask);
            }
        }

        private void signal(int subtask) {
            if (hasAll) {
                context.signalNoMoreSplits(subtask);
            }
        }

        public void handleSplitRequest(int subtask, String host) {
            inner.handleSplitRequest(subtask, host);
        }

        public void handleSourceEvent(int subtask, SourceEvent event) {
            if (!(event instanceof ReadToTheEnd)) {
                inner.handleSourceEvent(subtask, event);
                return;
            }
            haveRead.add(Integer.valueOf(subtask));
            if (haveRead.size() == context.currentParallelism()) {
                for (Iterator each = haveRead.iterator(); each.hasNext();) {
                    context.sendEventToSourceReader(((Integer) each.next()).intValue(), new ReadToTheEnd());
                }
            }
        }

        public Object snapshotState(long checkpoint) throws Exception {
            return inner.snapshotState(checkpoint);
        }

        public void notifyCheckpointComplete(long checkpoint) throws Exception {
            inner.notifyCheckpointComplete(checkpoint);
        }

        public void notifyCheckpointAborted(long checkpoint) throws Exception {
            inner.notifyCheckpointAborted(checkpoint);
        }

        public void close() throws IOException {
            if (admin != null) {
                admin.close(Duration.ofMillis(LOOK_MS));
            }
            inner.close();
        }
    }
}
