import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.flink.api.common.operators.ProcessingTimeService.ProcessingTimeCallback;
import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;
import org.apache.flink.types.Row;

/**
 * Gathers the messages of a topic, so that Python is called once for many: Row(partition, offset, value) in, perhaps
 * with the key as a fourth field, batches as bytes out. A batch is a long m; of m messages, in the order in which they
 * came, long offsets, int partitions and int lengths (-1: the message has no value; -2 - n: it has none, and the n bytes
 * of its key stand there), little-endian; and the values, each followed by a line feed. So JSON is lines of text
 * already, whichever messages it came in, and Python never looks at a single one.
 *
 * <p>What waits when a checkpoint begins is sent before its barrier, so nothing here is ever part of a checkpoint, and
 * nothing that the source's offsets have passed is lost. No operator in Python can do that: none is told of a barrier.
 *
 * <p>This file is compiled where it runs, by the compiler that Flink has for generated code, which knows no generics.
 */
public class MessageBatcher extends AbstractStreamOperator
        implements OneInputStreamOperator, ProcessingTimeCallback {

    private final int batchBytes;
    private final int batchMessages;
    private final long lingerMs;
    private final ByteArrayOutputStream values = new ByteArrayOutputStream();
    private long[] offsets = new long[1024];
    private int[] partitions = new int[1024];
    private int[] lengths = new int[1024];
    private int messages = 0;
    private boolean timerIsSet = false;
    private long sentNs;

    public MessageBatcher(
            Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService clock) {
        batchBytes = ((Number) references[0]).intValue();
        batchMessages = ((Number) references[1]).intValue();
        lingerMs = ((Number) references[2]).longValue();
        sentNs = System.nanoTime() - lingerMs * 1000000L;
        setProcessingTimeService(clock);
        setup(task, config, output);
    }

    /** Takes a message; sends the batch when it is full, or when the last one was sent long enough ago. */
    public void processElement(StreamRecord element) throws Exception {
        Row message = (Row) element.getValue();
        byte[] value = (byte[]) message.getField(2);
        if (messages == offsets.length) {
            offsets = Arrays.copyOf(offsets, 2 * messages);
            partitions = Arrays.copyOf(partitions, 2 * messages);
            lengths = Arrays.copyOf(lengths, 2 * messages);
        }
        partitions[messages] = ((Integer) message.getField(0)).intValue();
        offsets[messages] = ((Long) message.getField(1)).longValue();
        lengths[messages] = value == null ? -1 : value.length;
        if (value == null && message.getArity() > 3 && message.getField(3) != null) {
            value = (byte[]) message.getField(3);
            lengths[messages] = -2 - value.length;
        }
        if (value != null) {
            values.write(value, 0, value.length);
            values.write('\n');
        }
        messages++;
        if (messages >= batchMessages || size() >= batchBytes || toWaitMs() <= 0) {
            send();
        } else {
            wake();
        }
    }

    private int size() {
        return 8 + 16 * messages + values.size();
    }

    private long toWaitMs() {
        return lingerMs - (System.nanoTime() - sentNs) / 1000000L;
    }

    private void wake() {
        if (!timerIsSet) {
            ProcessingTimeService clock = getProcessingTimeService();
            clock.registerTimer(clock.getCurrentProcessingTime() + Math.max(1L, toWaitMs()), this);
            timerIsSet = true;
        }
    }

    public void onProcessingTime(long time) throws Exception {
        timerIsSet = false;
        if (messages > 0 && toWaitMs() > 0) {
            wake(); // a full batch was sent meanwhile
        } else {
            send();
        }
    }

    public void prepareSnapshotPreBarrier(long checkpoint) throws Exception {
        super.prepareSnapshotPreBarrier(checkpoint);
        send();
    }

    /** Sends what came before the mark; the one at the end of a bounded topic is what ends the stream. */
    public void processWatermark(Watermark mark) throws Exception {
        send();
        super.processWatermark(mark);
    }

    private void send() {
        if (messages > 0) {
            ByteBuffer batch = ByteBuffer.allocate(size()).order(ByteOrder.LITTLE_ENDIAN);
            batch.putLong((long) messages);
            for (int k = 0; k < messages; k++) {
                batch.putLong(offsets[k]);
            }
            for (int k = 0; k < messages; k++) {
                batch.putInt(partitions[k]);
            }
            for (int k = 0; k < messages; k++) {
                batch.putInt(lengths[k]);
            }
            batch.put(values.toByteArray());
            values.reset();
            messages = 0;
            output.collect(new StreamRecord(batch.array()));
            sentNs = System.nanoTime(); // after the batch was parsed, and however long that had to wait
        }
    }
}
